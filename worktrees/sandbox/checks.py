"""Run a check in a worktree, in a separate box. Time spent waiting for a slot never counts as a check's time.

The output of a check is stored twice: its end in the journal, for models and people, and all of it (within a limit) in
a log file. The log is raw output of a model's program.
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

TAIL = 4_000  # characters of a check's output in the journal
MORE_BOXES = 10  # boxes prepared or taken apart at the same time; with 2 slots and quick checks, half of the time
CAP = 2 * MIB  # of a check's output in its log; the middle is left out


class Checker:
    """Runs checks. They are CPU-bound, so they have a separate limit from the workers' commands.

    A check takes a slot only while its command runs. Preparing a box and taking it apart is mostly waiting for the
    kernel, so a few more boxes do that in the meantime.
    """

    def __init__(self, box: Box) -> None:
        self._box = box
        self._slots = Turns(box.settings.check_slots)
        self._boxes = Turns(box.settings.check_slots + MORE_BOXES)

    async def run(self, place: Place, commit: Sha, criterion: Criterion, *, lands: bool = False) -> CheckRun:
        """Run a check in a worktree. Raises `EffectError` if no box can start.

        Checks for finished work go first: hundreds of concurrent attempts would delay landing.
        """
        if criterion.run is None:
            why = "the check is missing a command. A named check gets its command from the configuration"
            return CheckRun(criterion=criterion.criterion, command="", passed=False, output=why)
        if place.decoy is not None:
            place = replace(place, decoy=replace(place.decoy, folder=None))  # not shared with other commands
        async with self._boxes.turn(first=lands):
            limiter = self._slots.turn(first=lands)
            done, tests = await self._run(place, criterion, limiter)
        run = await result_of(criterion.criterion, criterion.run, done)
        number = None if tests is None or tests.findings is not None else tests.number_passed
        run = run.model_copy(update={"tests": number, "ran_tests": tests})
        return await logged(run, self._box.settings.check_logs, commit[:12], done.stdout)

    async def _run(self, place: Place, criterion: Criterion, limiter: Turn) -> tuple[Finished, RanTests | None]:
        """Return the result of the command, and its report or the number of tests in a runner's summary."""
        command, files = criterion.run or "", criterion.tests
        run = partial(self._box.run, place, timeout_s=criterion.timeout_s, cap=CAP, limiter=limiter)
        if files is not None:
            return await self._run_with_files(place, command, files, run)
        if not self._box.settings.checks.expected_tests:
            return await run(self._box.shell(command)), None
        async with report_channel(place.scratch) as channel:
            done = await run(self._box.shell(command), report=channel.path, asks_pytest=True)
        tests = await to_thread.run_sync(junit_tests, channel.reports())
        if tests is None and not starts_pytest(
            command
        ):  # for pytest only a report counts: it has the names of the tests
            tests = await to_thread.run_sync(summary, done.text)
        return done, tests

    async def _run_with_files(
        self, place: Place, command: str, tests: str, run: Callable[..., Awaitable[Finished]]
    ) -> tuple[Finished, RanTests | None]:
        """Run a command that leaves its results in files."""
        form, _, files = tests.partition(":")
        async with report_channel(place.scratch) as channel:
            done = await run(self._box.copying(command, files, channel.path), report=channel.path)
        parse = junit_tests if form == "junit" else sarif_findings
        return done, await to_thread.run_sync(parse, channel.files())


async def result_of(criterion: str, command: str, done: Finished) -> CheckRun:
    """Return the result of a command with the end of its output and, if it failed, the relevant lines of all of it."""
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
    """Add the name of a log with the full output, if there is a folder for logs."""
    if folder is None:
        return run
    return run.model_copy(update={"log": await to_thread.run_sync(_write_log, folder, name, run, output)})


def log_stem(name: str, command: str) -> str:
    """Return the file name of a command's logs, without the number."""
    return f"{name}-{sha256(command.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _write_log(folder: Path, name: str, run: CheckRun, output: bytes) -> str:
    """Return the new log's name in the run's folder. Empty if writing fails, which does not fail the check."""
    command = run.command.encode("utf-8", "replace")
    ending = f"stopped after {run.seconds:.0f} s" if run.timed_out else f"exit code {run.exit_code}, {run.seconds} s"
    return write_log(
        folder, name, run.command, b"$ %s\n%s\n[%s]\n" % (command, output.removesuffix(b"\n"), ending.encode())
    )


def take_log(folder: Path, name: str) -> bytes:
    """Rename a log to the name of its run. Return an empty name if there is no log."""
    path = folder.parent / name
    try:
        text = path.read_bytes()
        path.unlink()
    except OSError:
        return b""
    return text


def write_log(folder: Path, name: str, command: str, text: bytes) -> str:
    """Return the name of a command's new log in the run's folder, or an empty name if it can't be written."""
    stem = log_stem(name, command)
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        for number in count(1):
            path = folder / f"{stem}-{number}.log"
            with suppress(FileExistsError):
                create_file(str(path), text, mode=0o600)
                return f"{folder.name}/{path.name}"
    return ""
