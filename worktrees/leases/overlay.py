"""Leases that cost next to nothing: two folders of the tenant's own above files that all leases share."""

import heapq
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from anyio import CancelScope, Lock, move_on_after, to_thread

from fleet.core.base.ids import RunId, Sha
from fleet.core.base.paths import folders_above
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.fs import make_folder, remove_small, wipe
from worktrees.base.process import os_errors
from worktrees.base.settings import WorktreeSettings
from worktrees.git.program import Git
from worktrees.leases.base_layers import Base, BaseLayers
from worktrees.leases.setup import Setup
from worktrees.leases.union_view import OPAQUE, BaseFiles, ignored, is_opaque, is_whiteout
from worktrees.sandbox.box import Place, port_environment
from worktrees.sandbox.overlay_mount import UPPER, VIEW, Overlay
from worktrees.store.store import Store, slots_dir

FOLDER = "overlays"
SMALL = 500  # files and folders of a lease that are removed in process
CLEANUP_S = 30.0  # how long removing a larger one may take; the rest is removed when the run stops


@dataclass(frozen=True, slots=True)
class LeasedOverlay:
    overlay: Overlay
    below: BaseFiles
    place: Place
    index: Path
    """Git's index of what the overlay is built on, or of a commit near it."""
    exact: bool
    """Whether the index is of the very commit."""


class Overlays:
    """The overlays of one run."""

    def __init__(self, store: Store, run: RunId, settings: WorktreeSettings, setup: Setup) -> None:
        self.home = slots_dir(store, run) / FOLDER
        self.base_layers = BaseLayers(self.home, store)
        self._setup_layers = SetupLayers(self.home, store.git, setup, self.base_layers)
        self._run, self._settings = run, settings
        self._free: list[int] = []  # numbers given back; the smallest is used first, so that they stay small
        self._numbers, self._folders = count(1), count(1)

    @asynccontextmanager
    async def lease(self, commit: Sha) -> AsyncIterator[LeasedOverlay]:
        """A worktree that holds exactly this commit. Raises `EffectError`."""
        base = await self.base_layers.take(commit)
        number = heapq.heappop(self._free) if self._free else next(self._numbers)
        folder, name = f"leases/{next(self._folders)}", f"{self._run}/{number}"
        try:
            overlay = await self._make_overlay(base, folder, name)
            scratch, environment = overlay.upper.with_name("scratch"), port_environment(self._settings, number)
            place = Place(overlay.view, scratch, name, overlay, environment)
            reached("a worktree is leased")
            yield LeasedOverlay(overlay, base.below, place, base.checkout.index, exact=not base.layers)
        finally:
            self.base_layers.leave(base)
            heapq.heappush(self._free, number)
            await _remove(self.home / folder)
            reached("a worktree is given back")

    async def _make_overlay(self, base: Base, folder: str, name: str) -> Overlay:
        with os_errors("a worktree can't be made ready"):
            make_folder(self.home / VIEW)
            setup_layers = await self._setup_layers.layers(base.below, base.lowers, name)
            overlay = Overlay(self.home, (*setup_layers, *base.lowers), folder)
            overlay.make()
            return overlay


async def _remove(folder: Path) -> None:
    if not remove_small(folder, max_entries=SMALL):
        with CancelScope(shield=True), move_on_after(CLEANUP_S), suppress(EffectError):
            await wipe(folder)


# ---- setup layers ----------------------------------------------------------------------------------------------------
# The files of the set-up as layers that all overlays share: made once for a fingerprint, read-only afterwards.
#
# Only files that git ignores are kept. A tenant that changes them changes its own upper folder.


@dataclass(frozen=True, slots=True)
class SetupLayer:
    folder: str
    roots: tuple[str, ...]
    """The paths in the tree below which its files lie."""


@dataclass(slots=True)
class SetupLayers:
    """The set-up layers of one run."""

    home: Path
    git: Git
    setup: Setup
    base_layers: BaseLayers
    _layers: dict[str, SetupLayer] = field(default_factory=dict)
    """By fingerprint."""
    _fits: dict[tuple[Sha, str], bool] = field(default_factory=dict)
    _making: Lock = field(default_factory=Lock)

    async def layers(self, below: BaseFiles, lowers: tuple[str, ...], name: str) -> tuple[str, ...]:
        """The layers to put above `lowers`. Raises `EffectError`."""
        if not self.setup.is_needed:
            return ()
        async with self._making:
            fingerprint = await self.setup.fingerprint(below.commit)
            if fingerprint not in self._layers:
                self._layers[fingerprint] = await self._make_on_origin(below, lowers, name)
            if not await self._layer_fits(self._layers[fingerprint], below.commit):
                fingerprint = f"{fingerprint}-{below.commit}"
                if fingerprint not in self._layers:
                    self._layers[fingerprint] = await self._make(below, lowers, name)
            return (self._layers[fingerprint].folder,)

    async def _make_on_origin(self, below: BaseFiles, lowers: tuple[str, ...], name: str) -> SetupLayer:
        """Make a layer on the commit that the set-up has to run on, which may be another one."""
        origin = await self.setup.origin(below.commit)
        if origin == below.commit:
            return await self._make(below, lowers, name)
        base = await self.base_layers.take(origin)
        try:
            return await self._make(base.below, base.lowers, name)
        finally:
            self.base_layers.leave(base)

    async def _layer_fits(self, layer: SetupLayer, commit: Sha) -> bool:
        """Whether no file of a commit lies where the layer has files, which would hide it."""
        if (commit, layer.folder) not in self._fits:
            listing = ("ls-tree", "-r", "-z", "--name-only", commit, "--", *layer.roots)
            self._fits[commit, layer.folder] = not (layer.roots and await self.git(*listing))
        return self._fits[commit, layer.folder]

    async def _make(self, below: BaseFiles, lowers: tuple[str, ...], name: str) -> SetupLayer:
        overlay = Overlay(self.home, lowers, f"setups/{len(self._layers) + 1}")
        await wipe(overlay.upper.parent)  # of an attempt to make it that failed
        overlay.make()
        await to_thread.run_sync(self.setup.included.copy_into, below.view, overlay.upper)
        await self.setup.run(Place(overlay.view, overlay.upper.with_name("scratch"), name, overlay), below.commit)
        files = await to_thread.run_sync(lambda: list(_plain_files(overlay.upper)))
        ignored_files = await ignored(self.git, below.view, files) if files else frozenset()
        await to_thread.run_sync(_remove_others, overlay.upper, files, ignored_files)
        roots = {self._root(below, path) for path in ignored_files}
        return SetupLayer(f"{overlay.folder}/{UPPER}", tuple(sorted(roots)))

    def _root(self, below: BaseFiles, path: str) -> str:
        return next((above for above in folders_above(path) if not below.view.is_folder(above)), path)


def _plain_files(upper: Path) -> Iterator[str]:
    """Everything that is not a folder. Whiteouts and opaque marks are removed: what git knows shows as it is."""
    pending = [""]
    while pending:
        folder = pending.pop()
        at = upper / folder
        at.chmod(at.stat().st_mode | 0o700)
        if is_opaque(os.fspath(at)):
            os.removexattr(at, OPAQUE)
        with os.scandir(at) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif is_whiteout(entry.stat(follow_symlinks=False)):
                    Path(entry.path).unlink()
                else:
                    yield path


def _remove_others(upper: Path, files: list[str], ignored_files: frozenset[str]) -> None:
    for path in set(files) - ignored_files:
        (upper / path).unlink()
