"""The worktrees of one run, opened: what the engine knows as its worktrees, its integrator and its publisher."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from anyio import CancelScope, CapacityLimiter, move_on_after, to_thread

from fleet.core.base.ids import RunId, Sha, SubtaskId, attempt_ref
from fleet.core.plans.plan import Criterion
from fleet.core.state.facts import CheckRun, Failure, SetupRun
from fleet.errors import FleetError
from fleet.ports.agents import Repository
from fleet.ports.worktrees import Change, EffectError, Lease, NamedCommits, RecoveredCommits, Signature
from worktrees.base.errors import os_errors
from worktrees.base.fs import make_folder
from worktrees.base.settings import WorktreeSettings
from worktrees.git.commit_message import committer_of
from worktrees.git.trees.write_tree import PathChange
from worktrees.leases.commit import commit_changes, find_overlay_changes, find_slot_changes
from worktrees.leases.gc import DIFF_CAP
from worktrees.leases.past_objects import PastObjects
from worktrees.overlay.leases import Overlays
from worktrees.overlay.probe import choose_kind
from worktrees.pool.leases import Pool, remove_slots
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.checks import Checker
from worktrees.sandbox.decoy import Decoys
from worktrees.sandbox.launcher import Launcher
from worktrees.sandbox.ownership import end_orphans
from worktrees.sandbox.workspace import BoxWorkspace
from worktrees.setup.include import gather_included
from worktrees.setup.setup import Setup
from worktrees.store.integrator import StoreIntegrator
from worktrees.store.locks import remove_stale_locks
from worktrees.store.repair import repair_store
from worktrees.store.snapshot import Snapshot
from worktrees.store.store import Store, begin_run, open_store, pinned_change, slots_dir, try_lock, unusable
from worktrees.target.publish import Publisher
from worktrees.target.target import Target

CLEANUP_S = 30.0  # how long removing a run's worktrees may take when the run stops

FindChanges = Callable[[], Awaitable[Sequence[PathChange] | Failure]]


@dataclass(frozen=True, slots=True)
class WorktreeLease:
    """Satisfies `Lease`, for both kinds of worktrees: they differ in how changes are found."""

    store: Store
    base: Sha
    workspace: BoxWorkspace
    checker: Checker
    find_changes: FindChanges

    async def check(self, criterion: Criterion, *, lands: bool = False) -> CheckRun:
        return await self.checker.run(self.workspace.place, self.base, criterion, lands=lands)

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        changes = await self.find_changes()
        if isinstance(changes, Failure):
            return changes
        settings = self.workspace.box.settings
        return await commit_changes(
            self.store, self.base, changes, signature=signature, touches=touches, settings=settings
        )


@dataclass(frozen=True, slots=True)
class RunWorktrees:
    """Satisfies `Worktrees`, `Commits` and `Recovery`."""

    store: Store
    pool: Pool
    overlays: Overlays | None
    """None where worktrees are leased from the pool."""
    box: Box
    checker: Checker
    integrator: StoreIntegrator
    publisher: Publisher
    commands: CapacityLimiter
    decoys: Decoys
    setup: Setup
    past: PastObjects | None = None
    """What a box sees of the store's objects, if that is not all of them: only what a base had behind it."""

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[Lease]:
        find_changes: FindChanges
        async with AsyncExitStack() as stack:
            if self.overlays is None:
                slot = await stack.enter_async_context(self.pool.lease(base))
                place = await self._with_decoy(slot.place, base, slot.admin / "index", exact=True)
                max_files = self.pool.max_files(slot)
                find_changes = partial(find_slot_changes, slot, self.box.settings, max_files=max_files)
            else:
                leased = await stack.enter_async_context(self.overlays.lease(base))
                place = await self._with_decoy(leased.place, base, leased.index, exact=leased.exact)
                git, settings = self.store.git, self.box.settings
                find_changes = partial(find_overlay_changes, git, leased.overlay, leased.below, settings)
            workspace = stack.enter_context(closing(BoxWorkspace(self.box, place, self.commands)))
            yield WorktreeLease(self.store, base, workspace, self.checker, find_changes)

    async def _with_decoy(self, place: Place, base: Sha, index: Path, *, exact: bool) -> Place:
        """The place with a git repository of its own. Without a box, commands see the worktree's repository anyway."""
        if self.box.settings.sandbox == "none":
            return place
        decoys = self.decoys
        if self.past is not None:
            decoys = decoys.with_objects(await self.past.objects(base))
            index = index if exact else place.scratch / "no-index"  # another commit's would name its files
        with os_errors("a repository for a worker can't be made"):
            return replace(place, decoy=decoys.make(place.scratch / "git", base, index=index, exact=exact))

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        return await pinned_change(self.store, attempt_ref(run, subtask, attempt))

    def finished_setups(self) -> tuple[SetupRun, ...]:
        finished = tuple(self.setup.finished)
        self.setup.finished.clear()
        return finished

    async def diff(self, base: Sha, commit: Sha) -> str:
        return await self.store.repository.patch(base, commit, cap=DIFF_CAP)

    async def tree(self, commit: Sha) -> Sha:
        return (await self.store.repository.commit(commit)).tree

    async def restored(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        person = self.integrator.committer
        return await self.store.repository.restore_files(commit, base, paths, person=person)

    def at(self, commit: Sha) -> Repository:
        return Snapshot(self.store.git, commit)

    async def recover(self, named: NamedCommits) -> RecoveredCommits:
        """Repair the store for a resumed run. Returns what is left of its commits. Raises `FleetError`."""
        try:
            return await repair_store(self.store, self.publisher.target, named, email=self.box.settings.email)
        except EffectError as error:
            raise FleetError(f"the run can't be resumed in {self.store.home}: {error}") from error


@asynccontextmanager
async def open_worktrees(
    target: Target, settings: WorktreeSettings, run: RunId, base: Sha, *, refs: bool = True, only_past: bool = False
) -> AsyncIterator[RunWorktrees]:
    """The worktrees of a run, from a ready store until the last slot is removed. Raises `FleetError`.

    Without `refs` nothing names the run's commits in the store: they are those of the target. With `only_past`, a box
    sees no object of the store that its base does not have behind it, and no set-up that another commit was given.
    """
    store = await open_store(settings.state_dir, target, base)
    with _locked(store, run), closing(Launcher()) as launcher:
        await to_thread.run_sync(end_orphans)  # what a killed manager left running could still write
        await _prepare_store(store, run, base if refs else None)
        box, decoys = Box(settings, starter=launcher), Decoys.of(store.git_dir)
        try:
            chosen = await choose_kind(settings, slots_dir(store, run))
            included = await gather_included(target, settings.include, slots_dir(store, run) / "included")
            if only_past:
                included = replace(included, digest=f"{included.digest}/{base}")
            setup = Setup(box, store.git, included, base, from_base=only_past)
            yield RunWorktrees(
                store=store,
                pool=Pool(store, run, settings, setup),
                overlays=Overlays(store, run, settings, setup) if chosen.kind == "overlay" else None,
                box=box,
                checker=Checker(box),
                integrator=StoreIntegrator(store, committer_of(settings.author, settings.email)),
                publisher=Publisher(store.git, target),
                commands=CapacityLimiter(settings.box_commands),
                decoys=decoys,
                setup=setup,
                past=PastObjects(store.git, slots_dir(store, run) / "past", base) if only_past else None,
            )
        finally:
            try:
                with CancelScope(shield=True), move_on_after(CLEANUP_S):
                    await remove_slots(store, run)
            finally:
                await store.close()


@contextmanager
def _locked(store: Store, run: RunId) -> Iterator[None]:
    """Hold the lock of a run's worktrees. Raises `FleetError` where another process holds it."""
    lock = slots_dir(store, run).with_name(f"{run}.lock")
    try:
        make_folder(lock.parent)
    except OSError as error:
        raise unusable(lock, error) from error
    with try_lock(lock) as ours:
        if not ours:
            raise FleetError(f"the worktrees of {run} are in use by another process; stop it first")
        yield


async def _prepare_store(store: Store, run: RunId, base: Sha | None) -> None:
    try:
        await remove_stale_locks(store, run)
        await remove_slots(store, run)
        if base is not None:
            await begin_run(store, run, base)
    except EffectError as error:
        raise FleetError(f"the run can't start in {store.home}: {error}") from error
