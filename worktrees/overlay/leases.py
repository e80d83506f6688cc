"""Leases that cost next to nothing: two folders of the tenant's own above files that all leases share."""

import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from anyio import CancelScope, move_on_after

from fleet.core.base.ids import RunId, Sha
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.errors import os_errors
from worktrees.base.fs import make_folder, remove_small, wipe
from worktrees.base.settings import WorktreeSettings
from worktrees.changes.ignored import BaseFiles
from worktrees.overlay.base_layers import Base, BaseLayers
from worktrees.overlay.setup_layers import SetupLayers
from worktrees.sandbox.box import Place
from worktrees.sandbox.environment import port_environment
from worktrees.sandbox.overlay_mount import VIEW, Overlay
from worktrees.setup.setup import Setup
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
