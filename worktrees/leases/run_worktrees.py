"""Open the worktrees of one run: the engine's worktrees, integrator and publisher."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex

from anyio import CancelScope, to_thread

from fleet.core.base.ids import RunId, Sha, SubtaskId, attempt_ref
from fleet.core.facts.facts import Member, SetupRun
from fleet.errors import FleetError
from fleet.ports.agents import PlannerRepository
from fleet.ports.worktrees import Change, EffectError, Integrator, Lease, Merged, NamedCommits, RecoveredCommits
from worktrees.base.fs import make_folder
from worktrees.base.settings import WorktreeSettings
from worktrees.git.object_format import Person, committer_of
from worktrees.leases.gc import DIFF_CAP
from worktrees.leases.leases import Leases, open_leases
from worktrees.leases.pool import remove_slots
from worktrees.leases.setup import Included, gather_included
from worktrees.sandbox.overlay_mount import end_orphans
from worktrees.store.integrator import StoreIntegrator
from worktrees.store.repair import repair_store
from worktrees.store.store import (
    Snapshot,
    Store,
    begin_run,
    home_of,
    open_store,
    pinned_change,
    remove_stale_locks,
    slots_dir,
    try_lock,
    unusable,
)
from worktrees.target.publish import Publisher
from worktrees.target.target import Target


@dataclass(frozen=True, slots=True)
class RunWorktrees:
    """Implements `Worktrees`, `Commits` and `Recovery`."""

    store: Store
    leases: Leases
    integrator: StoreIntegrator
    publisher: Publisher

    def lease(self, base: Sha) -> AbstractAsyncContextManager[Lease]:
        return self.leases.lease(base)

    def finished_setups(self) -> tuple[SetupRun, ...]:
        return self.leases.finished_setups()

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        return await pinned_change(self.store, attempt_ref(run, subtask, attempt))

    async def diff(self, base: Sha, commit: Sha) -> str:
        return await self.store.repository.patch(base, commit, cap=DIFF_CAP)

    async def tree(self, commit: Sha) -> Sha:
        return (await self.store.repository.commit(commit)).tree

    async def put_back(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        person = self.integrator.committer
        return await self.store.repository.restore_files(commit, base, paths, person=person)

    def at(self, commit: Sha) -> PlannerRepository:
        return Snapshot(self.store.git, commit)

    async def recover(self, named: NamedCommits) -> RecoveredCommits:
        """Repair the store for a resumed run. Return the state of its commits. Raises `FleetError`."""
        try:
            return await repair_store(
                self.store, self.publisher.target, named, email=self.leases.box.settings.git.email
            )
        except EffectError as error:
            raise FleetError(f"the run can't be resumed in {self.store.home}: {error}") from error


@asynccontextmanager
async def open_worktrees(
    target: Target, settings: WorktreeSettings, run: RunId, base: Sha, *, refs: bool = True, only_past: bool = False
) -> AsyncIterator[RunWorktrees]:
    """Open the worktrees of a run in a ready store, until the last slot is removed. Raises `FleetError`.

    Without `refs`, the run's commits have no refs in the store: they are those of the target. With `only_past`, a box
    sees only the objects of its base and its ancestors, and only the setup files of its commit.
    """
    store = await open_store(settings.state_dir, target, base)
    try:
        with _lock(store, run):
            await to_thread.run_sync(end_orphans)  # processes of a killed manager could still write
            await _prepare_store(store, run, base if refs else None)
            included = await gather_included(target, settings.worktrees.include, slots_dir(store, run) / "included")
            if only_past:
                included = replace(included, digest=f"{included.digest}/{base}")
            async with open_leases(store, settings, run, base, included, only_past=only_past) as leases:
                yield RunWorktrees(
                    store,
                    leases,
                    StoreIntegrator(store, committer_of(settings.git.name, settings.git.email)),
                    Publisher(store.git, target),
                )
    finally:
        await store.close()


@contextmanager
def _lock(store: Store, run: RunId) -> Iterator[None]:
    """Hold the lock of a run's worktrees. Raises `FleetError` if another process holds it."""
    lock = slots_dir(store, run).with_name(f"{run}.lock")
    try:
        make_folder(lock.parent)
    except OSError as error:
        raise unusable(lock, error) from error
    with try_lock(lock) as ours:
        if not ours:
            raise FleetError(f"another process uses the worktrees of {run}", hint="stop it first")
        yield


async def _prepare_store(store: Store, run: RunId, base: Sha | None) -> None:
    try:
        await remove_stale_locks(store, run)
        await remove_slots(store, run)
        if base is not None:
            await begin_run(store, run, base)
    except EffectError as error:
        raise FleetError(f"the run can't start in {store.home}: {error}") from error


# ---- trial worktrees -------------------------------------------------------------------------------------------------
# Worktrees without a run, to try setup and checks on a commit. They do not leave refs, locks or folders behind.


PREFIX = "try-"  # the prefix of their folder names


@asynccontextmanager
async def open_trial_worktrees(
    target: Target, settings: WorktreeSettings, *, only_past: bool = False
) -> AsyncIterator[RunWorktrees]:
    """Worktrees of the target's base commit, or of others with objects in the store. Raises `FleetError`."""
    store = Store(home_of(settings.state_dir, target))
    name = RunId(f"{PREFIX}{token_hex(4)}")
    await remove_unused(store, PREFIX)
    try:
        async with open_worktrees(target, settings, name, target.base, refs=False, only_past=only_past) as worktrees:
            yield worktrees
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(remove_lock, store, name)


async def remove_unused(store: Store, prefix: str) -> None:
    """Remove worktrees under names of this kind if their process is gone.

    This includes folders without a lock: child processes of a killed process may write a moment longer.
    """
    folder = store.home / "slots"
    for name in {path.name.removesuffix(".lock") for path in folder.glob(f"{prefix}*")}:
        with try_lock(_lock_of(store, name)) as is_left:
            if is_left:
                await remove_stale_locks(store, RunId(name))
                await remove_slots(store, name)
                remove_lock(store, name)


def is_taken(store: Store, prefix: str) -> bool:
    """Whether a process holds worktrees under a name of this kind."""
    for path in (store.home / "slots").glob(f"{prefix}*.lock"):
        with try_lock(path) as is_left:
            if not is_left:
                return True
    return False


@contextmanager
def reserve_name(store: Store, name: str) -> Iterator[None]:
    """Hold a new name for worktrees, so that other processes do not remove them. Raises `FleetError`."""
    lock = _lock_of(store, name)
    try:
        make_folder(lock.parent)
    except OSError as error:
        raise unusable(lock, error) from error
    with try_lock(lock):
        yield


def remove_lock(store: Store, name: str) -> None:
    with suppress(OSError):
        _lock_of(store, name).unlink()


def _lock_of(store: Store, name: str) -> Path:
    return store.home / "slots" / f"{name}.lock"


# ---- node worktrees --------------------------------------------------------------------------------------------------
# Worktrees on a node: leases of a cached repository, for a manager on another machine.


NODE_PREFIX = "node-"  # the prefix of their folder names


@asynccontextmanager
async def open_node_worktrees(store: Store, settings: WorktreeSettings, base: Sha) -> AsyncIterator[Leases]:
    """Leases for one connection, each under a unique name. Several connections can be open. Raises `FleetError`."""
    await to_thread.run_sync(end_orphans)
    await remove_unused(store, NODE_PREFIX)
    name = f"{NODE_PREFIX}{token_hex(4)}"
    with reserve_name(store, name):
        try:
            included = Included(slots_dir(store, name) / "included")
            async with open_leases(store, settings, name, base, included) as leases:
                yield leases
        finally:
            await to_thread.run_sync(remove_lock, store, name)
            with CancelScope(shield=True), suppress(EffectError):  # the next connection removes the rest
                await remove_unused(store, NODE_PREFIX)


def in_use(store: Store) -> bool:
    """Whether a connection uses worktrees of this store."""
    return is_taken(store, NODE_PREFIX)


# ---- past work -------------------------------------------------------------------------------------------------------
# The engine's worktrees, commits and integration branch if workers redo commits of history.
#
# Every attempt starts from the parent of its commit, so each result is judged on the tree it was made on, and none
# depends on another. A copy of the result lands on top of the earlier copies. The integration branch has them in a row,
# each with exactly the tree of the result. Agents never see such a copy.


@dataclass(slots=True)
class PastWork:
    """Implements `Worktrees`, `Commits` and `Integrator`."""

    worktrees: RunWorktrees
    integrator: Integrator
    base: Sha
    """The parent of the oldest commit: the only tree that comes before all of them."""
    starts: frozenset[Sha]
    """The parents of all commits."""
    committer: Person
    _results: dict[Sha, Sha] = field(default_factory=dict)
    """Maps each copy on the integration branch to its result."""

    # ---- worktrees

    def lease(self, base: Sha) -> AbstractAsyncContextManager[Lease]:
        return self._lease(self._results.get(base, base))

    @asynccontextmanager
    async def _lease(self, base: Sha) -> AsyncIterator[Lease]:
        async with self.worktrees.lease(base) as lease:
            yield lease

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        return await self.worktrees.pinned(run, subtask, attempt)

    async def put_back(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        return await self.worktrees.put_back(self._results.get(commit, commit), base, paths)

    def finished_setups(self) -> tuple[SetupRun, ...]:
        return self.worktrees.finished_setups()

    # ---- commits

    def at(self, commit: Sha) -> PlannerRepository:
        """The files that attempts start from. For the tip, which may be of a later commit, those of the base."""
        return self.worktrees.at(commit if commit in self.starts else self.base)

    async def tree(self, commit: Sha) -> Sha:
        return await self.worktrees.tree(commit)

    async def diff(self, base: Sha, commit: Sha) -> str:
        return await self.worktrees.diff(base, commit)

    # ---- the integration branch

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        """Append each result unchanged."""
        landed = list[Member]()
        repository = self.worktrees.store.repository
        for member in members:
            tree = (await repository.commit(member.commit)).tree
            tip = await repository.copy_commit(member.commit, tree, tip, committer=self.committer)
            self._results[tip] = member.commit
            landed.append(member.model_copy(update={"commit": tip}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=())

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.integrator.advance(run, new=new, old=old)

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        return await self.integrator.landed_since(run, old)
