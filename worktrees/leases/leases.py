"""Leases of one repository's worktrees, for a local run or a manager on another machine."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from anyio import CancelScope, CapacityLimiter, Lock, move_on_after

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, SetupRun
from fleet.core.plans.plan import Criterion
from fleet.ports.worktrees import Change, Lease, Signature
from worktrees.base.fs import make_folder
from worktrees.base.settings import WorktreeSettings
from worktrees.base.turns import background
from worktrees.git.program import Git
from worktrees.git.write_tree import PathChange
from worktrees.leases.commit import commit_changes, find_overlay_changes, find_slot_changes
from worktrees.leases.overlay import Overlays, choose_kind
from worktrees.leases.pool import Pool, remove_slots
from worktrees.leases.setup import Included, Setup
from worktrees.sandbox.box import Box, Decoys, Place
from worktrees.sandbox.checks import Checker
from worktrees.sandbox.launcher import Launcher
from worktrees.sandbox.workspace import BoxWorkspace
from worktrees.store.packs import keep_packed
from worktrees.store.store import Store, slots_dir

# ---- past objects ----------------------------------------------------------------------------------------------------
# The objects that a box may see if history contains the answer: those of a commit and of all its ancestors.
#
# The store of a target has every commit up to the newest, so its objects are not shown. The history of one commit, the
# root, is packed once. Every other commit gets a pack of its objects beyond that.


@dataclass(slots=True)
class PastObjects:
    """The object folders of one run, created on first use."""

    git: Git
    folder: Path
    root: Sha
    """The commit that is an ancestor of most others."""
    _packed: dict[Sha, Path] = field(default_factory=dict)
    _turn: Lock = field(default_factory=Lock)

    async def objects(self, commit: Sha) -> tuple[Path, ...]:
        """The folders with a commit, its ancestors, and at most the root's history in addition."""
        async with self._turn:
            if self.root not in self._packed:
                self._packed[self.root] = await self._pack(self.root)
            if commit not in self._packed:
                self._packed[commit] = await self._pack(commit, without=self.root)
            return tuple(dict.fromkeys((self._packed[self.root], self._packed[commit])))

    async def _pack(self, commit: Sha, *, without: Sha | None = None) -> Path:
        objects = self.folder / commit / "objects"
        make_folder(objects / "pack")
        asked = f"{commit}\n" if without is None else f"{commit}\n^{without}\n"
        pack = ("pack-objects", "-q", "--revs", "--delta-base-offset", "--missing=allow-any", "--threads=1")
        await self.git(*pack, str(objects / "pack" / "pack"), data=asked.encode())
        return objects


# ---- leases ----------------------------------------------------------------------------------------------------------


CLEANUP_S = 30.0  # time limit for removing a run's worktrees when the run stops

FindChanges = Callable[[], Awaitable[Sequence[PathChange] | Failure]]


@dataclass(frozen=True, slots=True)
class WorktreeLease:
    """Implements `Lease` for both kinds of worktrees, which differ in how changes are found."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Creates leases, and holds their shared parts."""

    store: Store
    pool: Pool
    overlays: Overlays | None
    """None if worktrees are leased from the pool."""
    box: Box
    checker: Checker
    commands: CapacityLimiter
    decoys: Decoys
    setup: Setup
    past: PastObjects | None = None
    """The visible objects of the store, if restricted to the ancestors of a base."""

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[Lease]:
        find_changes: FindChanges
        async with AsyncExitStack() as stack:
            if self.overlays is None:
                slot = await stack.enter_async_context(self.pool.lease(base))
                place = await self._with_decoy(slot.place, base, slot.admin / "index", exact=True)
                max_files = self.pool.max_files(slot)
                find_changes = partial(find_slot_changes, slot.git, slot.tree, self.box.settings, max_files=max_files)
            else:
                leased = await stack.enter_async_context(self.overlays.lease(base))
                place = await self._with_decoy(leased.place, base, leased.index, exact=leased.exact)
                git, settings = self.store.git, self.box.settings
                find_changes = partial(find_overlay_changes, git, leased.overlay, leased.below, settings)
            workspace = stack.enter_context(closing(BoxWorkspace(self.box, place, self.commands)))
            yield WorktreeLease(self.store, base, workspace, self.checker, find_changes)

    async def _with_decoy(self, place: Place, base: Sha, index: Path, *, exact: bool) -> Place:
        """Add a separate git repository to the place. Without a box, commands see the worktree's repository anyway."""
        if self.box.settings.box.sandbox == "none":
            return place
        decoys = self.decoys
        if self.past is not None:
            decoys = decoys.with_objects(await self.past.objects(base))
            index = index if exact else place.scratch / "no-index"  # another commit's index would list its files
        return replace(place, decoy=decoys.decoy(place.scratch / "git", base, index=index, exact=exact))

    @property
    def included_files(self) -> tuple[str, ...]:
        """Return the ignored files that are copied into each worktree."""
        return self.setup.included.paths

    def finished_setups(self) -> tuple[SetupRun, ...]:
        finished = tuple(self.setup.finished)
        self.setup.finished.clear()
        return finished


@asynccontextmanager
async def open_leases(
    store: Store, settings: WorktreeSettings, name: str, base: Sha, included: Included, *, only_past: bool = False
) -> AsyncIterator[Leases]:
    """Open leases under a unique name until the last worktree is removed. Raises `EffectError`."""
    with closing(Launcher()) as launcher:
        box = Box(settings, starter=launcher)
        try:
            chosen = await choose_kind(settings, slots_dir(store, name))
            setup = Setup(box, store.git, included, base, from_base=only_past)
            async with background(partial(keep_packed, store)):
                yield Leases(
                    store=store,
                    pool=Pool(store, name, settings, setup),
                    overlays=Overlays(store, name, settings, setup) if chosen.kind == "overlay" else None,
                    box=box,
                    checker=Checker(box),
                    commands=CapacityLimiter(settings.box_commands),
                    decoys=Decoys.of(store.git_dir),
                    setup=setup,
                    past=PastObjects(store.git, slots_dir(store, name) / "past", base) if only_past else None,
                )
        finally:
            with CancelScope(shield=True), move_on_after(CLEANUP_S):
                await remove_slots(store, name)
