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
from fleet.ports import Broken
from worktrees.box import Place
from worktrees.change import Below
from worktrees.ground import Grounds
from worktrees.mount import Overlay, discard
from worktrees.slots import slots_dir
from worktrees.store import Store
from worktrees.wipe import wipe

FOLDER = "overlays"
SMALL = 500  # files and folders that are removed on the spot
SWEEP_AT = 32  # larger ones that may wait to be removed


@dataclass(frozen=True, slots=True)
class Seat:
    """One lease."""

    number: int
    overlay: Overlay
    below: Below
    place: Place


@dataclass(slots=True)
class Overlays:
    """Of one run."""

    store: Store
    run: RunId
    cleanup_s: float
    grounds: Grounds = field(init=False)
    _free: list[int] = field(default_factory=list)
    """Numbers given back; the smallest is used first, so that they stay small."""
    _numbers: int = 0
    _leases: int = 0
    _waiting: list[Path] = field(default_factory=list)
    _sweeping: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.grounds = Grounds(self.home, self.store.git)

    @property
    def home(self) -> Path:
        return slots_dir(self.store, self.run) / FOLDER

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[Seat]:
        """A worktree that holds exactly `base`. Raises `Broken`."""
        ground = await self.grounds.take(base)
        number = heapq.heappop(self._free) if self._free else self._number()
        self._leases += 1
        overlay = Overlay(self.home, ground.lowers, f"leases/{self._leases}")
        try:
            try:
                overlay.make()
                overlay.view.mkdir(exist_ok=True)
            except OSError as error:
                raise _unready(error) from error
            yield Seat(number, overlay, ground.below, self._place(number, overlay))
        finally:
            self.grounds.leave(ground)
            heapq.heappush(self._free, number)
            await self._give_back(overlay)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _place(self, number: int, overlay: Overlay) -> Place:
        scratch = overlay.upper.with_name("scratch")
        return Place(tree=overlay.view, scratch=scratch, mark=f"{self.run}/{number}", overlay=overlay)

    async def _give_back(self, overlay: Overlay) -> None:
        folder = overlay.upper.parent
        if not discard(folder, most=SMALL):
            self._waiting.append(folder)
        if len(self._waiting) >= SWEEP_AT and not self._sweeping.locked():
            with CancelScope(shield=True), move_on_after(self.cleanup_s), suppress(Broken):
                await self._sweep()

    async def _sweep(self) -> None:
        async with self._sweeping:
            while self._waiting:
                await wipe(self._waiting.pop())


def _unready(error: OSError) -> Broken:
    return Broken(Failure(kind="infrastructure", summary=f"a worktree can't be made ready: {error}"))
