"""Verbs that read the result of a run: report, commits, audit."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dashboards.report.document import document
from dashboards.report.page import markdown as as_markdown
from dashboards.report.page import page
from dashboards.report.report_data import ReportData, report_data
from dashboards.text.audit_text import audit_lines
from dashboards.text.tables import commits_lines
from dashboards.traces import Span, Spans, as_document, collector_address, send, trace_lines
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Force, Otlp, Repo, RunArgument, RunName, reading
from fleet.cli.verbosity import show_note
from fleet.core.audit.attribution import commits_view
from fleet.core.audit.audit import audit_run, read_facts
from fleet.core.audit.audit_view import audit_view
from fleet.core.views.base_view import dump_view
from fleet.errors import FleetError, UsageError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from worktrees.target.target import read_attribution, read_result_branch

PERIODS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}
FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}


def report(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    html: Annotated[bool, typer.Option("--html", help="A self-contained page for a browser.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For a wiki or a pull request; the default.")] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file: .html, .md or .json."),
    ] = None,
    force: Force = False,
) -> None:
    """Write the report of a run.

    What landed, the run over time, recovery, cost, what needs attention, and how to undo it.

    \b
    Examples:
      fleet report -o report.html
      fleet report RUN --markdown | gh pr comment -F -
      fleet report RUN --json | jq .dollars_a_landed
    """
    flags = {"html": html, "markdown": markdown, "json": as_json}
    format_ = _report_format([name for name, is_set in flags.items() if is_set], output)
    if output is not None:
        common.check_output(output, force=force)
    data = report_of(common.run_to_read(run, named, repo))
    match format_:
        case "html":
            text = page(document(data))
        case "json":
            text = json.dumps(dump_view(data), indent=2, ensure_ascii=False) + "\n"
        case _:
            text = as_markdown(document(data))
    if output is None:
        typer.echo(text, nl=False)
    else:
        common.write_file(output, text)
        show_note(f"wrote {output}")


def report_of(folder: RunFolder) -> ReportData:
    """The data of a run's report. Raises `FleetError` for a run without any fact."""
    with Journal(folder.journal) as journal, reading(folder, journal) as facts:
        data = report_data((fact for _, fact in facts), time.time(), alive=folder.alive)
    if data is None:
        raise FleetError(f"{folder.run} is empty: it was stopped before it started", hint="`fleet clean` removes it")
    return data


def _report_format(flags: list[str], output: Path | None) -> str:
    """The format of the one flag, or else of the file's name."""
    if len(flags) > 1:
        raise UsageError(f"--{' and --'.join(flags)} exclude each other", hint="use one of them")
    if flags:
        return flags[0]
    if output is not None and output.suffix not in FORMATS:
        raise UsageError(
            f"{output}: a report file ends in .html, .md or .json", hint="or use --html, --markdown or --json"
        )
    return FORMATS[output.suffix] if output is not None else "markdown"


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


# ---- trace -----------------------------------------------------------------------------------------------------------
# The verb that turns a run into a trace.


def trace(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    otlp: Otlp = None,
    as_json: AsJson = False,
) -> None:
    """Turn a run into a trace of OpenTelemetry.

    Its spans: attempts and calls of the planner, in them calls of models and checks; and batches that landed. They are
    made of the journal, so a trace that is sent again has the same spans with the same ids. Of a run at work it has
    what is over; `fleet run --otlp URL` sends that meanwhile. --json prints it in the form of the protocol.

    \b
    Examples:
      fleet trace RUN --otlp http://127.0.0.1:4318
      fleet trace RUN
      fleet trace RUN --json > trace.json
    """
    url = collector_address(otlp) if otlp is not None else None
    folder = common.run_to_read(run, named, repo)
    made, found = Spans(), list[Span]()
    with Journal(folder.journal) as journal, reading(folder, journal) as facts:
        for seq, fact in facts:
            found += made.take(seq, fact)
    if url is not None:
        common.run_async(lambda: send(url, found, folder.run))
        show_note(f"{len(found):,} spans sent to {url}")
    if as_json:
        typer.echo(json.dumps(as_document(found, folder.run), ensure_ascii=False))
    elif url is None:
        common.show(list(trace_lines(found)))
