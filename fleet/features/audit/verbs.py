"""The verbs of the audit: `audit` for the result of a run, `commits` for a repository."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName, reading
from fleet.errors import FleetError, UsageError
from fleet.features.audit.attribution import commits_lines, commits_view, read_attribution
from fleet.features.audit.audit import audit_run, read_facts
from fleet.features.audit.audit_text import audit_lines
from fleet.features.audit.audit_view import audit_view
from fleet.features.audit.commits import read_result_branch
from fleet.runs.journal import Journal

PERIODS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def commits(
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="1w, 3d, 12h, or a day such as 2026-11-02.")
    ] = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """Count the fleet's commits in a repository.

    By week, model and worker, on all branches, with the share that was reverted later. A commit counts as the fleet's
    if its message has the trailers of a run.

    \b
    Examples:
      fleet commits --since 1w
      fleet commits --repo ../service --json | jq .commits
    """
    earliest = _parse_since(since, time.time()) if since is not None else None
    view = commits_view(common.run_async(lambda: read_attribution(repo, since=earliest)), since=since)
    common.show_view(view, commits_lines, as_json=as_json)


def _parse_since(text: str, now: float) -> float:
    """The time of a period ago, or of the beginning of a day."""
    period = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if period is not None:
        return max(0.0, now - int(period[1]) * PERIODS[period[2]])
    try:
        day = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--since {text!r}: write it like 1w, 3d, 12h, or 2026-11-02") from error
    return (day if day.tzinfo is not None else day.replace(tzinfo=UTC)).timestamp()


def audit(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    moved_to: Annotated[
        Path | None,
        typer.Option("--moved-to", metavar="DIR", help="Where the run's repository is now, if it was moved."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every commit on a run's result branch.

    Compares the records of each commit (epic, plan, approval, subtask, attempts, checks, landing) with git. Exit code
    1 if they differ, or something is missing.

    \b
    Examples:
      fleet audit RUN
      fleet audit RUN --json | jq '.commits[] | {commit, problems}'
      fleet audit RUN --moved-to ../service && git merge fleet/RUN
    """
    folder = common.run_to_read(run, named, repo)
    with Journal(folder.journal) as journal:
        with reading(folder, journal) as facts:
            before = read_facts(facts)
        if (state := before.state) is None:
            raise FleetError(f"{folder.journal} contains no run: {'; '.join(before.problems) or 'it is empty'}")
        path = moved_to or Path(state.repository)
        if moved_to is None and not path.exists():
            raise UsageError(
                f"the repository {path} does not exist any more", hint="--moved-to DIR says where it is now"
            )
        name, tip = state.result_branch, before.published
        branch = common.run_async(lambda: read_result_branch(path, name, base=state.base, instead=tip))
        with reading(folder, journal) as facts:
            result = audit_run(read_facts(facts), state, branch)  # read again: more may have landed since
    common.show_view(audit_view(result), audit_lines, as_json=as_json)
    if not result.holds:
        raise typer.Exit(1)
