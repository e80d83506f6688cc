"""The verb that prints conversations, also while they grow, and the logs of gate and set-up."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from dashboards.text.formats import counted
from dashboards.text.safe import safe, safe_block
from dashboards.text.transcript import transcript_lines
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, AttemptNumber, Repo, RunName, SubtaskId, read_state
from fleet.core.base.ids import SubtaskId as Id
from fleet.core.base.output import parse_json
from fleet.core.history.evolve import Follower
from fleet.core.state.state import RunState
from fleet.core.views.init_view import LogView
from fleet.errors import FleetError, UsageError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from worktrees.leases.setup import LOG
from worktrees.sandbox.checks import log_stem

PLANNER = "planner"
TICK_S = 0.25
CHUNK = 1024 * 1024  # bytes read at once


def logs(
    subtask: SubtaskId,
    named: RunName = None,
    repo: Repo = HERE,
    attempt: AttemptNumber = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as it grows, and with the next attempt, until its end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the conversation of an attempt.

    The model's messages, its tool calls and their results. In place of a subtask, `planner`: the planner's calls;
    `gate` or `setup`: the whole output of the last run of the project's gate or of the set-up command. --follow ends
    when the subtask is done, when the run stops, or with the attempt that you name; with --json, each entry is a line.

    \b
    Examples:
      fleet logs tokens
      fleet logs tokens --follow
      fleet logs tokens --attempt 1 | less
      fleet logs planner
      fleet logs gate --run RUN
    """
    folder = common.run_to_read(None, named, repo)
    state = read_state(folder)
    if subtask in CHECK_LOGS and state.plan.subtask(subtask) is None:
        if follow:
            raise UsageError(f"--follow shows conversations, and {subtask} has none", hint=f"`fleet logs {subtask}`")
        common.show_view(check_log(folder, state, subtask), log_lines, as_json=as_json)
        return
    if subtask != PLANNER:
        common.find_subtask(state, subtask)
    if follow:
        with Journal(folder.journal) as journal:
            followed = FollowedLog(folder, journal, subtask, attempt)
            common.run_async(lambda: _follow(followed, as_json=as_json))
        _transcript(folder.transcripts, subtask, attempt)  # there may never have been one
        return
    entries = list(_entries(_transcript(folder.transcripts, subtask, attempt)))
    if as_json:
        common.show_data(entries)
    else:
        common.show(transcript_lines(entries))


def _transcript(folder: Path, subtask: str, attempt: int | None) -> Path:
    """The file of an attempt; without a number that of the last one."""
    if attempt is not None:
        path = folder / f"{subtask}.{attempt}.jsonl"
        if not path.is_file():
            raise UsageError(
                f"attempt {attempt} of {subtask} has no log", hint=f"`fleet show {subtask}` lists its attempts"
            )
        return path
    numbers = _numbers(folder, subtask)
    if not numbers:
        raise UsageError(f"{subtask} has no log yet: no model was called for it", hint="--follow waits for it")
    return folder / f"{subtask}.{numbers[-1]}.jsonl"


def _numbers(folder: Path, subtask: str) -> list[int]:
    """The attempts that have a file."""
    pattern = re.compile(rf"{re.escape(subtask)}\.(\d+)\.jsonl")
    return sorted(int(match[1]) for path in folder.glob("*.jsonl") if (match := pattern.fullmatch(path.name)))


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if (entry := _entry(line)) is not None:
                yield entry


def _entry(line: str) -> dict[str, Any] | None:
    """The entry of a line; None if it is none: a kill can cut off the last line."""
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


# ---- following ------------------------------------------------------------------------------------------------------


class FollowedLog:
    """The conversation of a subtask as it grows: attempt after attempt, or the one that was named."""

    def __init__(self, folder: RunFolder, journal: Journal, subtask: str, attempt: int | None) -> None:
        self._folder, self._subtask, self._only = folder, subtask, attempt
        self._journal, self._follower = journal, Follower()
        self._number = attempt
        self._read = 0  # bytes of the file
        self._rest = b""  # a line that is being written

    def new(self) -> tuple[list[dict[str, Any]], bool]:
        """The entries since the last call, and whether there will be more."""
        is_alive = self._folder.alive  # before reading, so that everything written until then is read
        self._follower.catch_up(self._journal)
        will_grow = is_alive and not self._is_over(self._follower.state)
        return list(self._new_entries()), will_grow

    def _is_over(self, state: RunState | None) -> bool:
        if state is None or state.ended:
            return state is not None
        subtask = state.subtasks.get(Id(self._subtask))
        if subtask is None:
            return False
        if self._only is None:
            return subtask.closed
        named = (attempt for attempt in subtask.attempts if attempt.number == self._only)
        return any(attempt.commit is not None or attempt.ended_at is not None for attempt in named)

    def _new_entries(self) -> Iterator[dict[str, Any]]:
        numbers = _numbers(self._folder.transcripts, self._subtask)
        if self._number is None and numbers:
            self._number = numbers[-1]
        while self._number is not None:
            yield from self._grown(self._folder.transcripts / f"{self._subtask}.{self._number}.jsonl")
            following = next((number for number in numbers if number > self._number), None)
            if following is None or self._only is not None:
                return
            self._number, self._read, self._rest = following, 0, b""

    def _grown(self, path: Path) -> Iterator[dict[str, Any]]:
        """What was added to a file, in whole lines."""
        if not path.is_file():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            while chunk := file.read(CHUNK):
                self._read += len(chunk)
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                for line in lines:
                    if (entry := _entry(line.decode("utf-8", "replace"))) is not None:
                        yield entry


async def _follow(log: FollowedLog, *, as_json: bool) -> None:
    will_grow = True
    while will_grow:
        entries, will_grow = log.new()
        if as_json:
            for entry in entries:
                sys.stdout.write(json.dumps(entry, ensure_ascii=False) + "\n")
        else:
            common.show(transcript_lines(entries))
        sys.stdout.flush()
        if will_grow:
            await anyio.sleep(TICK_S)


# ---- check logs ------------------------------------------------------------------------------------------------------
# The logs of set-up and gate, as `fleet logs gate` and `fleet logs setup` print them.


CHECK_LOGS = frozenset({"gate", "setup"})
"""What `fleet logs` takes in place of a subtask."""
LINES = 20_000  # of a log on a terminal; the middle is left out


def check_log(folder: RunFolder, state: RunState, of: str) -> LogView:
    """The last log of the gate or the set-up command. Raises `UsageError` where there is none."""
    paths = _logs_of_setup(folder) if of == "setup" else _logs_of_gate(folder, state)
    if not paths:
        why = "no set-up command ran in it" if of == "setup" else "its gate did not run"
        raise UsageError(f"{folder.run} has no log of the {of}: {why}", hint=f"`fleet show {folder.run}` says more")
    *earlier, last = map(str, sorted(paths, key=lambda path: path.stat().st_mtime_ns))
    try:
        text = Path(last).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FleetError(f"{last} can't be read: {error.strerror}") from error
    return LogView(of, last, text, tuple(earlier))


def _logs_of_setup(folder: RunFolder) -> list[Path]:
    return list(folder.checks.glob(f"{LOG}-*.log"))


def _logs_of_gate(folder: RunFolder, state: RunState) -> list[Path]:
    commands = {state.gate_command or "", *(check.command for check in state.base_checks), *state.gate} - {""}
    return [path for command in commands for path in folder.checks.glob(f"{log_stem('*', command)}-*.log")]


def log_lines(view: LogView) -> Iterator[str]:
    yield safe_block(view.text, lines=LINES)
    more = f"; {counted(len(view.earlier), 'earlier log')} beside it" if view.earlier else ""
    yield f"({safe(view.log)}{more})"
