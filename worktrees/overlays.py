"""Leases that cost next to nothing: two folders of the tenant's own above files that everybody shares.

Giving one back moves it out of the way; what is small goes at once, the rest when enough has come together.
"""

import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, Lock, move_on_after

from fleet.core.facts import Failure
from fleet.core.ids import RunId, Sha
from fleet.points import reached
from fleet.ports import Broken
from worktrees.box import Place
from worktrees.change import Below
from worktrees.dress import Dresser
from worktrees.ground import Ground, Grounds
from worktrees.mount import SMALL, VIEW, Overlay, discard
from worktrees.settings import HandSettings
from worktrees.slots import slots_dir
from worktrees.store import Store
from worktrees.surroundings import port_environment
from worktrees.wardrobe import Wardrobe
from worktrees.wipe import make_folder, wipe

FOLDER = "overlays"
SWEEP_AT = 32  # larger ones that may wait to be removed


@dataclass(frozen=True, slots=True)
class Seat:
    """One lease."""

    overlay: Overlay
    below: Below
    place: Place
    index: Path
    """Git's index of what the overlay stands on, or of a commit near it."""
    exact: bool


@dataclass(slots=True)
class Overlays:
    """Of one run."""

    store: Store
    run: RunId
    settings: HandSettings
    dresser: Dresser
    grounds: Grounds = field(init=False)
    wardrobe: Wardrobe = field(init=False)
    _free: list[int] = field(default_factory=list)
    """Numbers given back; the smallest is used first, so that they stay small."""
    _numbers: int = 0
    _leases: int = 0
    _waiting: list[Path] = field(default_factory=list)
    _sweeping: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.grounds = Grounds(self.home, self.store)
        self.wardrobe = Wardrobe(self.home, self.store.git, self.dresser)

    @property
    def home(self) -> Path:
        return slots_dir(self.store, self.run) / FOLDER

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[Seat]:
        """A worktree that holds exactly `base`. Raises `Broken`."""
        ground = await self.grounds.take(base)
        number = heapq.heappop(self._free) if self._free else self._number()
        self._leases += 1
        seat = f"leases/{self._leases}"
        try:
            overlay = await self._overlay(ground, seat, number)
            place, index = self._place(overlay, number), ground.checkout.index
            reached("a worktree is leased")
            yield Seat(overlay, ground.below, place, index, exact=not ground.layers)
        finally:
            self.grounds.leave(ground)
            heapq.heappush(self._free, number)
            await self._give_back(self.home / seat)
            reached("a worktree is given back")

    async def _overlay(self, ground: Ground, seat: str, number: int) -> Overlay:
        try:
            make_folder(self.home / VIEW)
            dress = await self.wardrobe.layers(ground.below, ground.lowers, f"{self.run}/{number}")
            overlay = Overlay(self.home, (*dress, *ground.lowers), seat)
            overlay.make()
        except OSError as error:
            why = f"a worktree can't be made ready: {error}"
            raise Broken(Failure(kind="infrastructure", summary=why)) from error
        return overlay

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _place(self, overlay: Overlay, number: int) -> Place:
        scratch, mark = overlay.upper.with_name("scratch"), f"{self.run}/{number}"
        return Place(overlay.view, scratch, mark, overlay, port_environment(self.settings, number))

    async def _give_back(self, folder: Path) -> None:
        if not discard(folder, most=SMALL):
            self._waiting.append(folder)
        if len(self._waiting) >= SWEEP_AT and not self._sweeping.locked():
            with CancelScope(shield=True), move_on_after(self.settings.cleanup_s), suppress(Broken):
                await self._sweep()

    async def _sweep(self) -> None:
        async with self._sweeping:
            while self._waiting:
                await wipe(self._waiting.pop())
