"""Runs checks in a box at a worktree. Waiting for a turn never counts as a check's time.

Checks that are quick share boxes that stay: what a box costs would be most of what they cost.

What a check printed is kept twice: its end in the journal, where models and people look first, and all of it (within a
limit) in a log file of its own. The log is raw: it holds whatever a model's program printed.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, count
from math import inf
from pathlib import Path

from anyio import CapacityLimiter, to_thread

from fleet.core.expected import starts_pytest
from fleet.core.facts import CheckRun, RanTests
from fleet.core.ids import Sha
from fleet.core.plan import Criterion
from fleet.ports import Tell, nobody
from worktrees.box import Box, Place
from worktrees.desk import exit_code
from worktrees.heard import channel
from worktrees.process import Finished
from worktrees.serving import Order
from worktrees.settings import MIB, HandSettings
from worktrees.stations import Stations

TAIL = 4_000  # characters kept of a check's output in the journal
MORE_BOXES = 10  # made ready or taken apart at one time; with 2 slots and quick checks that is half of the time
QUICK_S = 1.0  # a command that took no longer the last time is given to a box that others used before
PATIENCE_S = 3.0  # for so long it may take there now; then it is broken off, and asked again in a box of its own
CAP = 2 * MIB  # of what a check printed in its log; the middle is left out


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks are bound by the processor, so they have turns of their own, apart from the workers' commands.

    A check has its turn only while its command runs. Making a box and taking it apart is mostly waiting for the kernel,
    and a few boxes beside those whose turn it is do that meanwhile.
    """

    box: Box
    turns: CapacityLimiter
    boxes: CapacityLimiter
    logs: Path | None = None
    listens: bool = True
    """Whether pytest is asked to say which tests it ran."""
    stations: Stations | None = None
    """Boxes that stay; none where every command has a box of its own."""
    took: dict[str, float] = field(default_factory=dict)
    """Seconds, by command."""

    async def run(
        self,
        place: Place,
        commit: Sha,
        criteria: Iterable[Criterion],
        tell: Tell = nobody,
        *,
        believe_red: bool = False,
    ) -> tuple[CheckRun, ...]:
        """One after another: they share a worktree, and boxes as far as they can. Raises `Broken` without a box.

        Each is taken when its turn has come, and told of at once. A red one that others shared its box with is asked
        again in a box of its own, and that answer counts; unless red ones may be believed.
        """
        runs = list[CheckRun]()
        single = isinstance(criteria, Sequence) and len(criteria) == 1

        def told(run: CheckRun) -> None:
            runs.append(run)
            tell(run)

        waiting, over = iter(criteria), False
        while not over:
            async with self.boxes:
                first = left = next(waiting, None)
                used = first is not None and self._may_be_used(place, first, believe_red=believe_red)
                if first is not None and (used or not single):
                    asked = chain([first], waiting)
                    left = await self._together(place, commit, asked, told, used=used, believe_red=believe_red)
            over = first is None
            if left is not None:
                told(await self._alone(place, commit, left))
        return tuple(runs)

    def _may_be_used(self, place: Place, criterion: Criterion, *, believe_red: bool) -> bool:
        """Whether a box will do that others used before. If it turns out red there it may have to be asked again."""
        command = criterion.run or ""
        quick = self.took.get(command, inf) <= QUICK_S and not starts_pytest(command)
        return quick and (believe_red or (place.overlay is not None and place.overlay.untouched))

    async def _together(
        self,
        place: Place,
        commit: Sha,
        criteria: Iterator[Criterion],
        told: Tell,
        *,
        used: bool,
        believe_red: bool,
    ) -> Criterion | None:
        """Run criteria in one box as long as that goes well. The one that was taken last, where it has no answer."""
        if self.stations is None:
            return next(criteria)
        taken = list[Criterion]()
        answered = 0

        def orders() -> Iterator[Order]:
            while answered == len(taken) and (criterion := next(criteria, None)) is not None:
                taken.append(criterion)
                limit = min(criterion.timeout_s, PATIENCE_S if used and not believe_red else criterion.timeout_s)
                order = Order(criterion.run or "", limit, place.environment)
                if criterion.run is None or not order.fits:
                    return
                yield order

        async def answer(done: Finished, heard: RanTests | None, first: bool) -> None:
            nonlocal answered
            run = await self._result(commit, taken[-1], done, heard)
            broken_off = done.timed_out and used and taken[-1].timeout_s > PATIENCE_S
            if run.passed or believe_red or (first and not broken_off):
                answered += 1
                told(run)

        overlay = place.overlay if place.overlay is not None and place.overlay.untouched else None
        await self.stations.serve(place, orders(), answer, used=used, turn=self.turns)
        if used and taken and not answered and overlay is not None:
            await overlay.renew()  # it is asked again, and finds the worktree as the first one did
        if not taken:  # there was no such box
            return next(criteria)
        return taken[-1] if answered < len(taken) else None

    async def _alone(self, place: Place, commit: Sha, criterion: Criterion) -> CheckRun:
        if criterion.run is None:
            why = "has no command; a named check must be filled in from the configuration first"
            return CheckRun(criterion=criterion.criterion, command="", passed=False, output=why)
        async with self.boxes:
            done, heard = await self._listened(place, criterion.run, criterion.timeout_s)
        return await self._result(commit, criterion, done, heard)

    async def _result(self, commit: Sha, criterion: Criterion, done: Finished, heard: RanTests | None) -> CheckRun:
        self.took[criterion.run or ""] = done.seconds if heard is None else inf  # what reports has a box of its own
        run = CheckRun(
            criterion=criterion.criterion,
            command=criterion.run or "",
            passed=done.exit_code == 0 and not done.timed_out,
            exit_code=exit_code(done),
            timed_out=done.timed_out,
            seconds=round(done.seconds, 3),
            output=done.stdout.decode("utf-8", "replace")[-TAIL:],
            tests=None if heard is None else len(heard.passed),
            heard=heard,
        )
        if self.logs is None:
            return run
        name = await to_thread.run_sync(_write, self.logs, commit, run, done.stdout)
        return run.model_copy(update={"log": name})

    async def _listened(self, place: Place, command: str, timeout_s: float) -> tuple[Finished, RanTests | None]:
        if not self.listens:
            return await self._boxed(place, command, timeout_s), None
        async with channel(place.scratch / "reports") as made:
            done = await self._boxed(place, command, timeout_s, made.path)
        return done, made.heard()

    async def _boxed(self, place: Place, command: str, timeout_s: float, report: Path | None = None) -> Finished:
        script = self.box.shell(command)
        return await self.box.run(place, script, timeout_s=timeout_s, cap=CAP, report=report, turn=self.turns)


def checker(box: Box, settings: HandSettings, stations: Stations | None = None) -> Checker:
    """As many commands at once as there are slots, and some boxes more."""
    return Checker(
        box,
        CapacityLimiter(settings.check_slots),
        CapacityLimiter(settings.check_slots + MORE_BOXES),
        settings.check_logs,
        settings.expected_tests,
        stations,
    )


def _write(folder: Path, commit: Sha, run: CheckRun, output: bytes) -> str:
    """The name of the new log below the run's folder; none where it can't be written, which fails no check."""
    command = run.command.encode("utf-8", "replace")
    stem = f"{commit[:12]}-{sha256(command).hexdigest()[:8]}"
    ended = f"stopped after {run.seconds:.0f} s" if run.timed_out else f"exit code {run.exit_code}, {run.seconds} s"
    text = b"$ %s\n%s\n[%s]\n" % (command, output.removesuffix(b"\n"), ended.encode())
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for number in count(1):
            path = folder / f"{stem}-{number}.log"
            with suppress(FileExistsError):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(text)
                return f"{folder.name}/{path.name}"
    return ""
