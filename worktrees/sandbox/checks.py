"""Runs a check in a worktree, in a box of its own. Waiting for a slot never counts as a check's time.

The output of a check is kept twice: its end in the journal, where models and people look first, and all of it (within a
limit) in a log file of its own. The log is raw: it holds whatever a model's program printed.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.output import key_lines
from fleet.core.facts.facts import CheckRun, RanTests
from fleet.core.plans.plan import Criterion
from fleet.core.verdicts.summaries import starts_pytest, summary
from worktrees.base.fs import create_file
from worktrees.base.process import Finished
from worktrees.base.settings import MIB
from worktrees.base.turns import Turn, Turns
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.channel import junit_tests, report_channel, sarif_findings

TAIL = 4_000  # characters kept of a check's output in the journal
MORE_BOXES = 10  # made ready or taken apart at one time; with 2 slots and quick checks that is half of the time
CAP = 2 * MIB  # of a check's output in its log; the middle is left out


class Checker:
    """Checks are bound by the processor, so they have a limit of their own, apart from the workers' commands.

    A check takes a slot only while its command runs. Making a box and taking it apart is mostly waiting for the kernel,
    so some more boxes do that meanwhile.
    """

    def __init__(self, box: Box) -> None:
        self._box = box
        self._slots = Turns(box.settings.check_slots)
        self._boxes = Turns(box.settings.check_slots + MORE_BOXES)

    async def run(self, place: Place, commit: Sha, criterion: Criterion, *, lands: bool = False) -> CheckRun:
        """Run a check in a worktree. Raises `EffectError` where no box can be made.

        One that finished work waits for comes before all others: hundreds of attempts at once would hold up landing.
        """
        if criterion.run is None:
            why = "has no command; a named check must be filled in from the configuration first"
            return CheckRun(criterion=criterion.criterion, command="", passed=False, output=why)
        if place.decoy is not None:
            place = replace(place, decoy=replace(place.decoy, folder=None))  # of no other command
        async with self._boxes.turn(first=lands):
            limiter = self._slots.turn(first=lands)
            done, tests = await self._run(place, criterion, limiter)
        run = await result_of(criterion.criterion, criterion.run, done)
        number = None if tests is None or tests.findings is not None else tests.number_passed
        run = run.model_copy(update={"tests": number, "ran_tests": tests})
        return await logged(run, self._box.settings.check_logs, commit[:12], done.stdout)

    async def _run(self, place: Place, criterion: Criterion, limiter: Turn) -> tuple[Finished, RanTests | None]:
        """How the command ended, and what it reported; or how many tests the summary of a runner counts."""
        command, files = criterion.run or "", criterion.tests
        run = partial(self._box.run, place, timeout_s=criterion.timeout_s, cap=CAP, limiter=limiter)
        if files is not None:
            return await self._run_with_files(place, command, files, run)
        if not self._box.settings.checks.expected_tests:
            return await run(self._box.shell(command)), None
        async with report_channel(place.scratch) as channel:
            done = await run(self._box.shell(command), report=channel.path, asks_pytest=True)
        tests = await to_thread.run_sync(junit_tests, channel.reports())
        if tests is None and not starts_pytest(command):  # of pytest only a report counts: it names the tests
            tests = await to_thread.run_sync(summary, done.text)
        return done, tests

    async def _run_with_files(
        self, place: Place, command: str, tests: str, run: Callable[..., Awaitable[Finished]]
    ) -> tuple[Finished, RanTests | None]:
        """The same for a command that leaves its results in files."""
        form, _, files = tests.partition(":")
        async with report_channel(place.scratch) as channel:
            done = await run(self._box.copying(command, files, channel.path), report=channel.path)
        parse = junit_tests if form == "junit" else sarif_findings
        return done, await to_thread.run_sync(parse, channel.files())


async def result_of(criterion: str, command: str, done: Finished) -> CheckRun:
    """How a command ended, with the end of its output; where it failed, with the lines of all of it that matter."""
    passed = done.exit_code == 0 and not done.timed_out
    return CheckRun(
        criterion=criterion,
        command=command,
        passed=passed,
        exit_code=done.shell_code,
        timed_out=done.timed_out,
        seconds=round(done.seconds, 3),
        peak_bytes=done.peak_bytes,
        output=done.text[-TAIL:],
        causes=() if passed else await to_thread.run_sync(key_lines, done.text),
    )


async def logged(run: CheckRun, folder: Path | None, name: str, output: bytes) -> CheckRun:
    """The result with the name of a log that holds the whole output, if there is a folder for logs."""
    if folder is None:
        return run
    return run.model_copy(update={"log": await to_thread.run_sync(_write_log, folder, name, run, output)})


def log_stem(name: str, command: str) -> str:
    """What the logs of a command are called, before their number."""
    return f"{name}-{sha256(command.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _write_log(folder: Path, name: str, run: CheckRun, output: bytes) -> str:
    """The name of the new log below the run's folder; empty where it can't be written, which fails no check."""
    command = run.command.encode("utf-8", "replace")
    ending = f"stopped after {run.seconds:.0f} s" if run.timed_out else f"exit code {run.exit_code}, {run.seconds} s"
    return write_log(
        folder, name, run.command, b"$ %s\n%s\n[%s]\n" % (command, output.removesuffix(b"\n"), ending.encode())
    )


def take_log(folder: Path, name: str) -> bytes:
    """A log by the name that its run has, which is deleted by that; empty where there is none."""
    path = folder.parent / name
    try:
        text = path.read_bytes()
        path.unlink()
    except OSError:
        return b""
    return text


def write_log(folder: Path, name: str, command: str, text: bytes) -> str:
    """The name of the new log of a command below the run's folder; empty where it can't be written."""
    stem = log_stem(name, command)
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for number in count(1):
            path = folder / f"{stem}-{number}.log"
            with suppress(FileExistsError):
                create_file(str(path), text, mode=0o600)
                return f"{folder.name}/{path.name}"
    return ""
