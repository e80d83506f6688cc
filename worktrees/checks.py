"""Runs checks in a box at a worktree. Waiting for a turn never counts as a check's time.

What a check printed is kept twice: its end in the journal, where models and people look first, and all of it (within a
limit) in a log file of its own. The log is raw: it holds whatever a model's program printed.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path

from anyio import CapacityLimiter, to_thread

from fleet.core.facts import CheckRun, RanTests
from fleet.core.ids import Sha
from fleet.core.plan import Criterion
from worktrees.box import Box, Place
from worktrees.desk import exit_code
from worktrees.heard import channel
from worktrees.process import Finished
from worktrees.settings import MIB, HandSettings

TAIL = 4_000  # characters kept of a check's output in the journal
MORE_BOXES = 10  # made ready or taken apart at one time; with 2 slots and quick checks that is half of the time
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

    async def run(self, place: Place, commit: Sha, criteria: Sequence[Criterion]) -> tuple[CheckRun, ...]:
        """One after another: they share a worktree. Raises `Broken` where there is no box."""
        return tuple([await self._one(place, commit, criterion) for criterion in criteria])

    async def _one(self, place: Place, commit: Sha, criterion: Criterion) -> CheckRun:
        if criterion.run is None:
            why = "has no command; a named check must be filled in from the configuration first"
            return CheckRun(criterion=criterion.criterion, command="", passed=False, output=why)
        async with self.boxes:
            done, heard = await self._listened(place, criterion.run, criterion.timeout_s)
        run = CheckRun(
            criterion=criterion.criterion,
            command=criterion.run,
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


def checker(box: Box, settings: HandSettings) -> Checker:
    """As many commands at once as there are slots, and some boxes more."""
    return Checker(
        box,
        CapacityLimiter(settings.check_slots),
        CapacityLimiter(settings.check_slots + MORE_BOXES),
        settings.check_logs,
        settings.expected_tests,
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
