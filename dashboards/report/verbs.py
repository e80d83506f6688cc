"""The `report` verb."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dashboards.report.drawing import markdown as as_markdown
from dashboards.report.drawing import page
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Force, Repo, RunArgument, RunName
from fleet.cli.verbosity import show_note
from fleet.errors import UsageError
from fleet.read.base_view import dump_view

FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".json": "json"}


def report(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    html: Annotated[bool, typer.Option("--html", help="Print a self-contained HTML page.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a wiki or a pull request (default).")
    ] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file: .html, .md or .json."),
    ] = None,
    force: Force = False,
) -> None:
    """Generate the report of a run.

    The report contains the landed changes, charts over time, recovery, cost, open problems, and how to undo the run.

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
    data = common.report_of(common.run_to_read(run, named, repo))
    match format_:
        case "html":
            text = page(data)
        case "json":
            text = json.dumps(dump_view(data), indent=2, ensure_ascii=False) + "\n"
        case _:
            text = as_markdown(data)
    if output is None:
        typer.echo(text, nl=False)
    else:
        common.write_file(output, text)
        show_note(f"wrote {output}")


def _report_format(flags: list[str], output: Path | None) -> str:
    """Return the format from the flag, or else from the file name."""
    if len(flags) > 1:
        raise UsageError(f"--{' and --'.join(flags)} can't be used together", hint="use one of them")
    if flags:
        return flags[0]
    if output is not None and output.suffix not in FORMATS:
        raise UsageError(
            f"unknown report format: {output}", hint="use .html, .md or .json, or add --html, --markdown or --json"
        )
    return FORMATS[output.suffix] if output is not None else "markdown"
