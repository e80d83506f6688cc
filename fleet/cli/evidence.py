"""Verbs that give account: metrics, commits, report, audit."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import HERE, AsJson, ConfigFile, Repo, RunArgument, run_async, show, show_json, the_run
from fleet.errors import UsageError

if TYPE_CHECKING:
    from dashboards.report.figures import Figures

FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}
PERIODS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}
STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def register(app: typer.Typer) -> None:
    for verb in (metrics, commits, report, audit):
        app.command()(verb)


def metrics(
    listen: Annotated[
        str | None, typer.Option("--listen", help="HOST:PORT, 127.0.0.1:9464 by default; port 0 chooses a free one.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Serve the figures of all runs for Prometheus, until Ctrl-C.

    Reads journals only: it can be started and stopped at any time, on any machine that sees the state directory.

    \b
    Examples:
      fleet metrics
      fleet metrics --listen 127.0.0.1:9500
    """
    from dashboards.metrics.server import DEFAULT_PORT, parse_address
    from fleet.cli.exporter import exporting
    from fleet.config import load_config
    from fleet.folders import all_runs

    own = load_config(environ=os.environ, config_file=config, repository=None).config
    address = parse_address(listen or own.metrics.listen or str(DEFAULT_PORT))
    where = Path(own.state.dir)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)  # in all threads: the one that waits for them takes them
    with exporting(lambda: all_runs(where), where, address, own.metrics.hosts) as exporter:
        typer.echo(f"metrics of all runs in {where} at http://{exporter.address}/metrics; Ctrl-C stops", err=True)
        signal.sigwait(STOP)


def commits(
    since: Annotated[str | None, typer.Option("--since", help="1w, 3d, 12h, or a day such as 2026-11-02.")] = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """Count the fleet's commits in a repository.

    By week, model and worker, with the share that was reverted later.

    All branches are looked at. A commit is the fleet's by its own word: the trailers of its message.

    \b
    Examples:
      fleet commits --since 1w
      fleet commits --repo ../service --json | jq .commits
    """
    from dashboards.commits import commits_lines
    from fleet.core.attribution import account_view
    from worktrees.ledger import attributed

    back_to = _moment(since, time.time()) if since is not None else None
    told = account_view(run_async(lambda: attributed(repo, since=back_to)))
    if as_json:
        show_json({"since": since, **told})
    else:
        show(commits_lines(told))


def report(
    run: RunArgument = None,
    html: Annotated[bool, typer.Option("--html", help="One page for a browser, with nothing to fetch.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For a wiki or a pull request; the default.")] = False,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it here: .html, .md or .json.")] = None,
) -> None:
    """Give account of a run.

    What landed, how it went over time, what recovered how, what it cost, what needs a human, how to undo it.

    \b
    Examples:
      fleet report -o report.html
      fleet report RUN --markdown | gh pr comment -F -
      fleet report RUN --json | jq .dollars_a_landed
    """
    from dashboards.report.figures import figures
    from fleet.errors import FleetError
    from fleet.journal import Journal

    form = _form(html=html, markdown=markdown, as_json=as_json, output=output)
    folder = the_run(run)
    with Journal(folder.journal) as journal:
        told = figures((fact for _, fact in journal.facts()), time.time(), alive=folder.alive)
    if told is None:
        raise FleetError(f"{folder.run} is empty: it was stopped before it began; `fleet clean` removes it")
    text = _written(told, form)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}; choose another place with -o") from error
    typer.echo(f"wrote {output}", err=True)


def audit(
    run: RunArgument = None,
    repo: Annotated[
        Path | None, typer.Option("--repo", help="Where the repository is now, if it has moved since the run began.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Account for every commit on a run's result branch.

    From the epic over plan, approval, subtask, attempts and checks to the landing, held against git. Exit code 1 where
    journal and git do not say the same, or something is missing.

    \b
    Examples:
      fleet audit RUN
      fleet audit RUN --json | jq '.commits[] | {commit, problems}'
      fleet audit RUN --repo ../service && git merge fleet/RUN
    """
    from dashboards.audit import audit_lines
    from fleet.core.audit import audited
    from fleet.core.audit_view import audit_view
    from fleet.core.chains import read_facts
    from fleet.errors import FleetError
    from fleet.journal import Journal
    from worktrees.result import result_of

    folder = the_run(run)
    with Journal(folder.journal) as journal:
        before = read_facts(journal.facts())
        if (state := before.state) is None:
            raise FleetError(f"{folder.journal} tells of no run: {'; '.join(before.flaws) or 'it is empty'}")
        at, instead = repo or Path(state.repository), before.published
        branch = run_async(lambda: result_of(at, state.result_branch, base=state.base, instead=instead))
        told = audited(
            read_facts(journal.facts()), state, branch
        )  # read again: a run that goes on may have landed more
    view = audit_view(told)
    if as_json:
        show_json(view)
    else:
        show(audit_lines(view))
    if not told.holds:
        raise typer.Exit(1)


def _form(*, html: bool, markdown: bool, as_json: bool, output: Path | None) -> str:
    """How it is written down: as one option says, else as the name of the file does."""
    asked = [name for name, wanted in (("html", html), ("markdown", markdown), ("json", as_json)) if wanted]
    if len(asked) > 1:
        raise UsageError(f"--{' and --'.join(asked)} exclude each other; choose one")
    if asked:
        return asked[0]
    if output is None:
        return "markdown"
    if output.suffix not in FORMS:
        raise UsageError(f"{output}: a report is written as .html, .md or .json; or say --html, --markdown or --json")
    return FORMS[output.suffix]


def _written(told: Figures, form: str) -> str:
    from dashboards.report.document import document
    from dashboards.report.markdown import markdown
    from dashboards.report.page import page

    match form:
        case "html":
            return page(document(told))
        case "json":
            return json.dumps(dataclasses.asdict(told), indent=2, ensure_ascii=False) + "\n"
        case _:
            return markdown(document(told))


def _moment(text: str, now: float) -> float:
    """The moment that a person means: so long ago, or the beginning of a day."""
    period = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if period is not None:
        return max(0.0, now - int(period[1]) * PERIODS[period[2]])
    try:
        day = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--since {text!r}: write it like 1w, 3d, 12h, or 2026-11-02") from error
    return (day if day.tzinfo is not None else day.replace(tzinfo=UTC)).timestamp()
