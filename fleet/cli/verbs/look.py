"""Read-only verbs: runs, status, show, logs, diff."""

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from dashboards.text.event_text import transcript_lines
from dashboards.text.formats import counted, painted_diff
from dashboards.text.incident_text import story_lines
from dashboards.text.plan_review import version_lines
from dashboards.text.safe import safe, safe_block
from dashboards.text.tables import run_lines, runs_lines, status_lines, subtask_lines
from fleet.cli import common
from fleet.cli.common import (
    HERE,
    AsJson,
    AttemptNumber,
    Pause,
    Repo,
    RunArgument,
    RunName,
    SubtaskArgument,
    read_state,
    subtask_ids,
)
from fleet.config import environment
from fleet.core.base.ids import SubtaskId
from fleet.core.base.output import parse_json
from fleet.core.history.evolve import Follower
from fleet.errors import FleetError, UsageError
from fleet.read.base_view import dump_view
from fleet.read.run import RunSnapshot, just_after, status_view
from fleet.read.run_view import LogView, StatusView
from fleet.read.subtask_view import DiffView
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, all_runs, find_run, git_folder, is_same_repository, readable_runs, runs_dir
from worktrees.leases.gc import stored_diff
from worktrees.leases.setup import LOG
from worktrees.sandbox.checks import log_stem


def runs(
    everything: Annotated[bool, typer.Option("--all", help="List the runs of all repositories.")] = False,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="List only runs in this state, such as running or partial."),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="List only the last N runs.")] = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """List runs.

    Lists the runs of the current repository, the latest last. With --all, or outside a repository, it lists the runs of
    all repositories.

    \b
    Examples:
      fleet runs
      fleet runs --all --last 20
      fleet runs --json | jq -r '.[] | select(.state == "partial") | .run'
    """
    state_dir, now, here = common.state_dir(), time.time(), git_folder(repo)
    readable = readable_runs(state_dir)
    chosen = [run for run in readable if everything or here is None or is_same_repository(run[1].repository, here)]
    views = [status_view(of, now, alive=folder.alive) for folder, of in chosen]
    rows = [row for row in views if state is None or row.state == state][-(last or 0) :]
    if as_json:
        common.show_json(rows)
    else:
        common.show(runs_lines(rows) if rows else [_no_runs(views, len(readable), state)])
    if unreadable := len(all_runs(state_dir)) - len(readable):
        typer.echo(f"{counted(unreadable, 'run')} could not be read. `fleet status RUN` shows the error.", err=True)


def _no_runs(views: Sequence[StatusView], readable: int, state: str | None) -> str:
    if views:
        found = ", ".join(sorted({view.state for view in views}))
        return f"no runs in state {state}. States of these runs: {found}"
    others = f"\n`fleet runs --all` lists {counted(readable, 'run')} of other repositories" if readable else ""
    return f'no runs yet. Start one: fleet run "Add a health endpoint"{others}'


def status(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show the status again after each change, until the run stops.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the status of a run.

    With --watch, a terminal shows the current status. A pipe gets the status again after each change, with --json as
    one line of JSON.

    \b
    Examples:
      fleet status
      fleet status --watch
      fleet status RUN --json | jq .incidents.by_strategy
    """
    folder = common.run_to_read(run, named, repo)
    if watch:
        watch_status(folder, as_json=as_json)
        return
    common.show_view(_read(folder).status, status_lines, as_json=as_json)


def _read(folder: RunFolder) -> RunSnapshot:
    return RunSnapshot(read_state(folder), time.time(), folder.alive)


def show_subtask(
    subtask: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBTASK", help="The id of a subtask, or the name of a run.", autocompletion=subtask_ids
        ),
    ] = None,
    named: RunName = None,
    repo: Repo = HERE,
    versions: Annotated[
        str | None,
        typer.Option(
            "--versions", metavar="N..M", help="Show the changes between versions N and M of the plan instead."
        ),
    ] = None,
    incident: Annotated[
        int | None, typer.Option("--incident", "-i", metavar="N", help="Show incident N with its evidence instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a subtask, or a run's incidents.

    For an incident, it shows the evidence of the failure, and each remedy with its author, worker, model, result and
    cost. With --versions, it shows the versions of the plan and the reason for each.

    \b
    Examples:
      fleet show tokens
      fleet show tokens --run RUN --json
      fleet show RUN                   all incidents of a run, and how many recovered
      fleet show RUN --incident 3      one incident, with its evidence
      fleet show --versions 1..3       the changes in the second and third version
    """
    if versions is not None and incident is not None:
        raise UsageError("--versions and --incident can't be used together", hint="use one of them")
    folder, run, id_ = _find(subtask, named, repo)
    if versions is not None:
        _show_versions(run, versions, as_json=as_json)
    elif incident is not None:
        _show_incident(run, incident, as_json=as_json)
    elif id_ is None:
        lines = partial(run_lines, logs=f"{folder.path}/")
        common.show_view(run.story, lines, as_json=as_json)
    else:
        view = run.subtask(common.find_subtask(run, id_).id, logs=f"{folder.path}/")
        common.show_view(view, subtask_lines, as_json=as_json)


def _find(name: str | None, run: str | None, repo: Path) -> tuple[RunFolder, RunSnapshot, str | None]:
    """The run, and the id of a subtask in it: a name is a subtask of the latest run, or else a run."""
    state_dir = common.state_dir()
    if name is None or run is not None or "/" in name or not RunFolder(runs_dir(state_dir) / name).journal.is_file():
        folder = common.run_to_read(None, run, repo)
        return folder, _read(folder), name
    found = find_run(state_dir, name)
    with suppress(FleetError):  # there is no latest run, or it can't be read
        latest = common.run_to_read(None, None, repo)
        seen = _read(latest)
        if seen.plan.subtask(SubtaskId(name)) is not None:
            return latest, seen, name
        if latest == found:
            return found, seen, None
    return found, _read(found), None


def _show_incident(run: RunSnapshot, number: int, *, as_json: bool) -> None:
    incidents = run.incidents()
    if all(incident.number != number for incident in incidents):
        numbers = f"use a number from 1 to {len(incidents)}" if incidents else "no incidents are recorded"
        raise UsageError(f"no incident {number} in {run.run}", hint=numbers)
    common.show_view(run.incident(number), story_lines, as_json=as_json)


def _show_versions(run: RunSnapshot, versions: str, *, as_json: bool) -> None:
    bounds = re.fullmatch(r"(\d+)\.\.(\d+)", versions)
    if bounds is None or int(bounds[1]) >= int(bounds[2]):
        raise UsageError(
            f"invalid value for --versions: {versions!r}",
            hint="name two versions, the older first, such as 1..3. Version 0 is the state before the first plan.",
        )
    diffs = run.version_changes(int(bounds[1]), int(bounds[2]))
    if not diffs:
        raise UsageError(f"no versions {versions} in {run.run}", hint=f"its latest version is {run.plan.version}")
    if as_json:
        common.show_json(diffs)
    else:
        common.show(line for version in diffs for line in version_lines(version))


def diff(
    subtask: SubtaskArgument,
    named: RunName = None,
    repo: Repo = HERE,
    attempt: AttemptNumber = None,
    as_json: AsJson = False,
) -> None:
    """Print the diff of an attempt.

    By default, prints the diff of the last attempt with a commit, whether it landed or not.

    \b
    Examples:
      fleet diff tokens
      fleet diff tokens --attempt 1
    """
    folder = common.run_to_read(None, named, repo)
    view = common.run_async(lambda: change_of(folder, subtask, attempt))
    if as_json:
        common.show_json(view)
    else:
        common.show(safe_block(view.diff, lines=20_000).splitlines(), painted_diff)


async def change_of(folder: RunFolder, subtask: str, attempt: int | None) -> DiffView:
    """The diff of an attempt, by default the last with a commit."""
    run = _read(folder)
    spec = common.find_subtask(run, subtask)
    commits = [
        (a.number, a.base, a.commit) for a in run.subtask(spec.id).attempts if a.commit and attempt in {None, a.number}
    ]
    if not commits:
        raise UsageError(f"no commit of {subtask} yet", hint=f"run `fleet show {subtask}` to see its attempts")
    number, base, commit = commits[-1]
    patch = await stored_diff(common.state_dir(), folder.run, base, commit)
    if patch is None:
        raise FleetError(
            f"commit {commit[:12]} is no longer in the store",
            hint="`fleet clean --apply --runs` deletes the commits of landed runs",
        )
    return DiffView(spec.id, number, base, commit, patch)


# ---- watched status --------------------------------------------------------------------------------------------------
# `fleet status --watch`: shows the status of a run repeatedly, until the run stops.


TICK_S = 1.0
CLEAR = "\x1b[H\x1b[J"  # clears the screen


def watch_status(folder: RunFolder, *, as_json: bool, pause: Pause = anyio.sleep) -> None:
    """Show the status again after each change."""
    in_place = sys.stdout.isatty() and environment.can_move_cursor() and not as_json
    with Journal(folder.journal) as journal:
        common.run_async(lambda: _watch(folder, journal, pause, in_place=in_place, as_json=as_json))


async def _watch(folder: RunFolder, journal: Journal, pause: Pause, *, in_place: bool, as_json: bool) -> None:
    follower, is_first = Follower(), True
    while True:
        alive = folder.alive  # before reading, so that everything written until then is shown
        has_news = follower.catch_up(journal)
        state = follower.state
        will_change = alive and (state is None or not state.ended)
        if state is not None and (has_news or in_place or not will_change):
            view = RunSnapshot(state, time.time(), alive).status
            if as_json:
                sys.stdout.write(json.dumps(dump_view(view), ensure_ascii=False) + "\n")
            elif in_place:
                _show_in_place(view, whole=not will_change)
            else:
                common.show([*([] if is_first else [""]), *status_lines(view)])
            sys.stdout.flush()
            is_first = False
        if not will_change:
            return
        await pause(TICK_S)


def _show_in_place(view: StatusView, *, whole: bool) -> None:
    """Replace the contents of the terminal. Lines that do not fit are cut, except the last time."""
    lines, room = list(status_lines(view)), shutil.get_terminal_size().lines - 2
    if len(lines) > room and not whole:
        lines = [*lines[:room], f"… {len(lines) - room} more lines"]
    sys.stdout.write(CLEAR)
    common.show(lines)


# ---- logs ------------------------------------------------------------------------------------------------------------
# The verb that prints conversations, finished or growing, and the logs of the gate and the setup command.


PLANNER = "planner"
LOG_TICK_S = 0.25
CHUNK = 1024 * 1024  # bytes read at once


def logs(
    subtask: SubtaskArgument,
    named: RunName = None,
    repo: Repo = HERE,
    attempt: AttemptNumber = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new entries as they arrive, and continue with the next attempt."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the conversation of an attempt.

    The log contains the model's messages, its tool calls and their results. Instead of a subtask, you can pass
    `planner` for the planner's calls, or `gate` or `setup` for the full output of the last run of the gate or the setup
    command.

    --follow ends when the subtask is done, when the run stops, or after the attempt in --attempt. With --json, it
    prints one entry per line.

    \b
    Examples:
      fleet logs tokens
      fleet logs tokens --follow
      fleet logs tokens --attempt 1 | less
      fleet logs planner
      fleet logs gate --run RUN
    """
    folder = common.run_to_read(None, named, repo)
    run = _read(folder)
    if subtask in CHECK_LOGS and run.plan.subtask(SubtaskId(subtask)) is None:
        if follow:
            raise UsageError(f"--follow can't be used with {subtask}", hint=f"run `fleet logs {subtask}`")
        common.show_view(check_log(folder, run, subtask), log_lines, as_json=as_json)
        return
    if subtask != PLANNER:
        common.find_subtask(run, subtask)
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
    """The file of an attempt, by default the last."""
    if attempt is not None:
        path = folder / f"{subtask}.{attempt}.jsonl"
        if not path.is_file():
            raise UsageError(
                f"no log of attempt {attempt} of {subtask}", hint=f"run `fleet show {subtask}` to list its attempts"
            )
        return path
    numbers = _numbers(folder, subtask)
    if not numbers:
        raise UsageError(
            f"{subtask} does not have a log yet: fleet has not called a model for it",
            hint="use --follow to wait for the log",
        )
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
    """Parse a line; None if it is not an entry. A kill can cut off the last line."""
    try:
        entry = parse_json(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


# ---- following ------------------------------------------------------------------------------------------------------


class FollowedLog:
    """The growing conversation of a subtask: of all attempts in turn, or of one attempt."""

    def __init__(self, folder: RunFolder, journal: Journal, subtask: str, attempt: int | None) -> None:
        self._folder, self._subtask, self._only = folder, subtask, attempt
        self._journal, self._follower = journal, Follower()
        self._number = attempt
        self._read = 0  # bytes of the file
        self._rest = b""  # a line that is being written

    def new(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the entries since the last call, and whether more will follow."""
        is_alive = self._folder.alive  # before reading, so that everything written until then is read
        self._follower.catch_up(self._journal)
        will_grow = is_alive and not self._is_over()
        return list(self._new_entries()), will_grow

    def _is_over(self) -> bool:
        state = self._follower.state
        return state is not None and just_after(state).is_over(SubtaskId(self._subtask), self._only)

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
        """Read the complete lines added to a file."""
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
            await anyio.sleep(LOG_TICK_S)


# ---- check logs ------------------------------------------------------------------------------------------------------
# The logs that `fleet logs gate` and `fleet logs setup` print.


CHECK_LOGS = frozenset({"gate", "setup"})
"""The names that `fleet logs` accepts instead of a subtask."""
LINES = 20_000  # of a log on a terminal; longer logs are cut in the middle


def check_log(folder: RunFolder, run: RunSnapshot, of: str) -> LogView:
    """The last log of the gate or the setup command. Raises `UsageError` if there is no log."""
    paths = _logs_of_setup(folder) if of == "setup" else _logs_of_gate(folder, run)
    if not paths:
        why = "the setup command did not run" if of == "setup" else "the gate did not run"
        raise UsageError(f"{folder.run} has no {of} log: {why}", hint=f"run `fleet show {folder.run}` for details")
    *earlier, last = map(str, sorted(paths, key=lambda path: path.stat().st_mtime_ns))
    try:
        text = Path(last).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FleetError(f"can't read {last}: {error.strerror}") from error
    return LogView(of, last, text, tuple(earlier))


def _logs_of_setup(folder: RunFolder) -> list[Path]:
    return list(folder.checks.glob(f"{LOG}-*.log"))


def _logs_of_gate(folder: RunFolder, run: RunSnapshot) -> list[Path]:
    return [path for command in run.gate_commands for path in folder.checks.glob(f"{log_stem('*', command)}-*.log")]


def log_lines(view: LogView) -> Iterator[str]:
    yield safe_block(view.text, lines=LINES)
    more = f", {counted(len(view.earlier), 'earlier log')} in the same folder" if view.earlier else ""
    yield f"({safe(view.log)}{more})"
