"""Verbs that only look: runs, status, show, logs, diff."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.cli.common import AsJson, RunArgument, RunName, run_async, show, show_json, state_dir, the_run, the_subtask
from fleet.errors import FleetError, UsageError

if TYPE_CHECKING:
    from fleet.core.state import RunState
    from fleet.folders import RunFolder

Subtask = Annotated[str, typer.Argument(help="The id of a subtask.")]
Number = Annotated[int | None, typer.Option("--attempt", "-n", help="Which attempt; the last by default.")]


def register(app: typer.Typer) -> None:
    for verb in (runs, status, show_subtask, logs, diff):
        app.command(name="show" if verb is show_subtask else None)(verb)


def runs(as_json: AsJson = False) -> None:
    """List all runs, the latest last.

    \b
    Examples:
      fleet runs
      fleet runs --json | jq -r '.[] | select(.state == "partial") | .run'
    """
    from dashboards.tables import runs_lines
    from fleet.core.views import status as view
    from fleet.folders import all_runs, readable_runs

    now = time.time()
    folders = all_runs(state_dir())
    rows = [view(state, now, alive=folder.alive) for folder, state in readable_runs(state_dir())]
    if as_json:
        show_json(rows)
    elif rows:
        show(runs_lines(rows))
    elif not folders:
        typer.echo('no runs yet; begin one with: fleet run "Add a health endpoint"')
    unreadable = len(folders) - len(rows)
    if unreadable:
        typer.echo(f"{unreadable} run(s) could not be read; `fleet status RUN` says why", err=True)


def status(run: RunArgument = None, as_json: AsJson = False) -> None:
    """How a run is doing.

    \b
    Examples:
      fleet status
      fleet status RUN --json | jq .incidents.by_strategy
    """
    from dashboards.tables import status_lines
    from fleet.core.views import status as view

    folder = the_run(run)
    said = view(folder.state(), time.time(), alive=folder.alive)
    if as_json:
        show_json(said)
    else:
        show(status_lines(said))


def show_subtask(
    subtask: Annotated[str | None, typer.Argument(help="The id of a subtask, or the name of a run.")] = None,
    run: RunName = None,
    versions: Annotated[
        str | None, typer.Option("--plan", help="Instead: what versions N..M of the plan changed.")
    ] = None,
    incident: Annotated[
        int | None, typer.Option("--incident", "-i", help="Instead: the story of incident N, with its evidence.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """One subtask: attempts, checks, failures. Or a run: what failed, what was tried, what worked.

    The story of an incident goes from its failure and the evidence over each remedy (who chose it, which worker and
    model tried it, what came of it, what it cost) to its end. --plan shows the plan's versions, each with its reason.

    \b
    Examples:
      fleet show tokens
      fleet show tokens --run RUN --json
      fleet show RUN                   every incident of a run, and how many recovered
      fleet show RUN --incident 3      one of them, with its evidence
      fleet show --plan 1..3           what the second and the third version changed
    """
    from dashboards.tables import subtask_lines
    from fleet.core.views import subtask_view

    if versions is not None and incident is not None:
        raise UsageError("--plan and --incident show different things; choose one of them")
    folder, id_ = _meant(subtask, run)
    state = folder.state()
    if versions is not None:
        _show_versions(state, versions, as_json=as_json)
        return
    if id_ is None or incident is not None:
        _show_run(state, incident, alive=folder.alive, as_json=as_json)
        return
    said = subtask_view(state, the_subtask(state, id_), time.time())
    for check in (check for attempt in said["attempts"] for check in attempt["checks"] if check["log"]):
        check["log"] = str(folder.path / check["log"])
    if as_json:
        show_json(said)
    else:
        show(subtask_lines(said))


def _meant(name: str | None, run: str | None) -> tuple[RunFolder, str | None]:
    """The run, and the subtask in it: a name is a subtask's, or else a run's."""
    from fleet.folders import RunFolder, find_run, runs_dir

    if name is None or run is not None:
        return the_run(run), name
    named = RunFolder(runs_dir(state_dir()) / name)
    if "/" in name or not named.journal.is_file():
        return the_run(None), name
    with suppress(FleetError):  # there is no other run, or none that can be read
        latest = the_run(None)
        if latest.state().plan.subtask(name) is not None:
            return latest, name
    return find_run(state_dir(), name), None


def _show_run(state: RunState, number: int | None, *, alive: bool, as_json: bool) -> None:
    """A run's incidents, or one of them."""
    from dashboards.stories import run_lines, story_lines
    from fleet.core.views import run_view

    said = run_view(state, time.time(), alive=alive)
    if number is None:
        if as_json:
            show_json(said)
        else:
            show(run_lines(said))
        return
    story = next((story for story in said["incidents"] if story["number"] == number), None)
    if story is None:
        there = f"it has {len(said['incidents'])}, numbered from 1" if said["incidents"] else "nothing failed in it"
        raise UsageError(f"{state.run} has no incident {number}: {there}")
    if as_json:
        show_json(story)
    else:
        show(story_lines(story))


def _show_versions(state: RunState, versions: str, *, as_json: bool) -> None:
    from dashboards.words import version_lines
    from fleet.core.diff import version_diffs

    found = re.fullmatch(r"(\d+)\.\.(\d+)", versions)
    if found is None or int(found[1]) >= int(found[2]):
        raise UsageError(
            f"--plan {versions}: write two versions, the older one first, such as 1..3 (0 is before any plan)"
        )
    diffs = list(version_diffs(state.versions, int(found[1]), int(found[2])))
    if not diffs:
        raise UsageError(f"{state.run} has no such versions; its plan is at version {state.plan.version}")
    if as_json:
        about = [({"version": v.plan.version, "by": v.by, "area": v.area, "why": v.why}, lines) for v, lines in diffs]
        show_json([{**version, "changes": list(lines)} for version, lines in about])
    else:
        show(line for version, lines in diffs for line in version_lines(version, lines))


def logs(subtask: Subtask, run: RunName = None, attempt: Number = None, as_json: AsJson = False) -> None:
    """The conversation of an attempt.

    What the model said, what it ran, what came back. The name `planner` stands for the planner's calls.

    \b
    Examples:
      fleet logs tokens
      fleet logs tokens --attempt 1 | less
      fleet logs planner
    """
    from dashboards.transcript import transcript_lines

    folder = the_run(run)
    if subtask != "planner":
        the_subtask(folder.state(), subtask)
    path = _transcript(folder.transcripts, subtask, attempt)
    entries = list(_entries(path))
    if as_json:
        show_json(entries)
    else:
        show(transcript_lines(entries))


def _transcript(folder: Path, subtask: str, attempt: int | None) -> Path:
    """The file of an attempt; without a number the last there is."""
    if attempt is not None:
        path = folder / f"{subtask}.{attempt}.jsonl"
        if not path.is_file():
            raise UsageError(f"attempt {attempt} of {subtask} has no log; `fleet show {subtask}` lists its attempts")
        return path
    named = re.compile(rf"{re.escape(subtask)}\.(\d+)\.jsonl")
    matches = ((named.fullmatch(path.name), path) for path in folder.glob("*.jsonl"))
    found = sorted((int(match[1]), path) for match, path in matches if match is not None)
    if not found:
        raise UsageError(f"{subtask} has no log yet: no model was called for it")
    return found[-1][1]


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:  # the line that a kill cut off
                continue
            if isinstance(entry, dict):
                yield entry


def diff(subtask: Subtask, run: RunName = None, attempt: Number = None) -> None:
    """What an attempt changed.

    The commit that landed, or the one that was kept.

    \b
    Examples:
      fleet diff tokens
      fleet diff tokens --attempt 1
    """
    from dashboards.safe import safe_block
    from worktrees.clean import stored_diff

    folder = the_run(run)
    state = folder.state()
    the_subtask(state, subtask)
    tried = state.subtasks[subtask].attempts
    chosen = [a for a in tried if a.commit is not None and attempt in {None, a.number}]
    if not chosen:
        raise UsageError(f"{subtask} has no commit yet; `fleet show {subtask}` tells what happened to it")
    base, commit = chosen[-1].base, chosen[-1].commit
    assert commit is not None  # noqa: S101 - chosen above
    patch = run_async(lambda: stored_diff(state_dir(), folder.run, base, commit))
    if patch is None:
        raise FleetError(f"commit {commit[:12]} is not in the store any more; `fleet clean` may have removed it")
    typer.echo(safe_block(patch, lines=20_000))
