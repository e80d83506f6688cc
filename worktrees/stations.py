"""Boxes that stay, and are shown one worktree after another: what a box costs is paid once for many quick checks.

A station is a box whose worktree, and git repository with it, is mounted while it stands: at a folder of ours that the
box has a part of, by the process that starts boxes; and with it every place that can be written to, empty. Nothing goes
on from one worktree's commands to the next one's: the shell that serves ends all other processes, and a box in which
something could last is not used again. The commands on one worktree follow each other, and see what they did to it.
"""

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from anyio import CancelScope, CapacityLimiter, create_task_group

from fleet.core.facts import RanTests
from fleet.ports import Broken
from worktrees.box import Box, Place, mounted_for, own_folders, places
from worktrees.decoy import POINTER, Decoy, Decoys
from worktrees.files import create
from worktrees.forks import Forks, Step
from worktrees.guard import Guard, guarded
from worktrees.heard import Channel, make_channel
from worktrees.process import Child, Finished, start
from worktrees.serving import Order, serve
from worktrees.surroundings import HOME
from worktrees.wipe import make_folder

Answer = Callable[[Finished, RanTests | None, bool], Awaitable[None]]
"""What came of a command, which tests it ran, and whether it was the first in its box."""


@dataclass(slots=True)
class Station:
    """One box that stays. Its worktree is mounted in a folder of `home`."""

    home: Path
    child: Child
    init: int | None
    """The first process in the box."""
    heard: Channel | None
    used: bool = False
    shell: int = 0
    """The process that serves, and how it was when it began: what commands change of that goes on to the next."""
    manner: object = None

    async def end(self) -> None:
        with CancelScope(shield=True):
            await self.child.stop(0.0)
        self.child.close()
        if self.heard is not None:
            self.heard.close()


@dataclass(slots=True)
class Stations:
    """Of one run."""

    box: Box
    keeper: Forks
    """Starts them and mounts what they are shown: not where other boxes are started, whom all that would slow down."""
    folder: Path
    decoys: Decoys
    cap: int
    """Bytes of what a command prints that are kept."""
    listens: bool
    most: int
    """How many may stay when nobody uses them."""
    _idle: list[Station] = field(default_factory=list)
    _made: int = 0
    _none: bool = False
    """Something was in the way: there are none any more."""

    async def serve(
        self, place: Place, orders: Iterable[Order], answer: Answer, *, used: bool, turn: CapacityLimiter
    ) -> None:
        """Run commands one after another on one worktree, as they come, until there are no more or the box has ended.

        Then the one that was taken last has no answer, or one that says that its time was over. None is taken where
        there is no station. `used`: whether a station will do that others used before.
        """
        async with mounted_for(place) as options:
            station = self._idle.pop() if used and self._idle and not self._none else await self._new()
            if station is None:
                return
            stays = False
            try:
                if await self._show(station, place, options):
                    stays = await self._work(station, place, orders, answer, turn)
            finally:
                with CancelScope(shield=True):
                    await self._leave(station, stays=stays and len(self._idle) < self.most)

    async def _leave(self, station: Station, *, stays: bool) -> None:
        """Nothing is to be seen there any more. One that stays is for the next."""
        if not stays:
            await station.end()
        cleared = await self.keeper.arrange(station.home, *_cleared(station.home, whole=not stays))
        if stays and cleared:
            self._idle.append(station)
        elif stays:
            self._none = True
            await station.end()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end()

    async def _new(self) -> Station | None:
        if self._none:
            return None
        self._made += 1
        home = self.folder / str(self._made)
        try:
            return await self._built(home)
        except (
            OSError,
            ValueError,
            Broken,
        ):  # whoever wants to run something makes a box of its own, and hears why if it can't
            return None

    async def _built(self, home: Path) -> Station | None:
        for name in ("repo", "git", *places(self.box.settings.limits)):
            make_folder(Path(f"{home}/{name}"))
        create(str(home / "index"), b"")
        create(str(home / "pointer"), POINTER)
        mark = f"{self.folder.parent.name}/station-{home.name}"
        decoy = Decoy(home / "git", self.decoys.objects, home / "index", self.decoys.excluded)
        heard = make_channel(home) if self.listens else None
        station, complete = None, False
        try:
            report = heard.path if heard is not None else None
            with self.box.standing(Place(home / "repo", home, mark, decoy=decoy), report) as launch:
                if launch is None or not await self.keeper.arrange(home, ("share", str(home))):
                    self._none = True
                    return None
                station = Station(home, await start(launch, self.cap), None, heard)
                await station.child.reach_gate(launch.init)
                station.init = launch.init() if launch.init is not None else None
                station.shell = _only_child(station.init)
                station.manner = _manner(station.shell)
                complete = station.child.ready
        finally:
            if station is None and heard is not None:
                heard.close()
            elif station is not None and not complete:
                with CancelScope(shield=True):
                    await self._leave(station, stays=False)
        return station if complete else None

    async def _show(self, station: Station, place: Place, options: str) -> bool:
        """Whether the box sees a worktree now, and the repository that goes with it."""
        steps = self._steps(station, place, options)
        if not steps:
            return False
        shown = await self.keeper.arrange(place.overlay.home if place.overlay else Path("/"), *steps)
        self._none = self._none or not shown
        return shown

    def _steps(self, station: Station, place: Place, options: str) -> list[Step]:
        """What mounts a worktree, and empty places beside it; nothing where there is no repository to go with it."""
        home, decoy = station.home, place.decoy
        if decoy is None or not decoy.index.is_file():
            return []
        at, steps = f"{home}/repo", list[Step]()
        furnish: dict[str, list[Step]] = {str(Path(HOME).parent): [("folder", f"{home}{HOME}")]}
        if station.heard is not None:
            report, shown = station.heard.path, f"{home}/run/{station.heard.path.name}"
            furnish["/run"] = [("file", shown), ("show", str(report), shown, False)]
        for folder, size in places(self.box.settings.limits).items():
            steps.append(("room", f"{home}{folder}", size, furnish.get(folder, [])))
        steps.append(("overlay", at, options) if options else ("show", str(place.tree), at, False))
        if options or os.path.lexists(place.tree / ".git"):
            steps.append(("show", f"{home}/pointer", f"{at}/.git", True))
        steps.append(("show", str(decoy.folder), f"{home}/git", False))
        return [*steps, ("show", str(decoy.index), f"{home}/index", True)]

    async def _work(
        self, station: Station, place: Place, orders: Iterable[Order], answer: Answer, turn: CapacityLimiter
    ) -> bool:
        """Whether the box is good for more."""
        guard = Guard(self.box.settings.limits, lambda: station.init, *own_folders(place))
        return await guarded(partial(self._one_by_one, station, orders, answer, turn), guard)

    async def _one_by_one(
        self, station: Station, orders: Iterable[Order], answer: Answer, turn: CapacityLimiter
    ) -> bool:
        child, heard = station.child, station.heard
        good, failed = True, None
        async with create_task_group() as beside:
            for pipe in child.pipes:
                beside.start_soon(pipe.drain)
            if heard is not None:
                beside.start_soon(heard.listen)
            try:
                for order in orders:
                    first, station.used = not station.used, True
                    async with turn:
                        done, good = await serve(child, order)
                    if done is not None:
                        await answer(done, heard.take() if heard is not None else None, first)
                    good = good and _manner(station.shell) == station.manner
                    if not good:
                        break
            except Broken as broken:  # raised in here it would come out as a group
                failed = broken
            beside.cancel_scope.cancel()
        if failed is not None:
            raise failed
        return good


def _only_child(pid: int | None) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(" ".join(children))


def _manner(pid: int) -> object:
    """What a process of the same user may change of another, or none where that is gone."""
    try:
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
        times = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid), os.sched_getaffinity(pid)
    except OSError:
        return None
    return limits, times


def _cleared(home: Path, *, whole: bool) -> list[Step]:
    """What takes away all that was mounted; `whole`: nobody will be shown anything there any more."""
    names = ("repo", "git", "index", *(("tmp", "dev/shm", "run", "home", "") if whole else ()))
    return [("clear", f"{home}/{name}".rstrip("/")) for name in names]
