"""The verb that exports a run as a trace."""

import json

import typer

from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Otlp, Repo, RunArgument, RunName, reading
from fleet.cli.verbosity import show_note
from fleet.features.traces.spans import Span, Spans, as_document, collector_address, send, trace_lines
from fleet.runs.journal import Journal


def trace(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    otlp: Otlp = None,
    as_json: AsJson = False,
) -> None:
    """Export a run as an OpenTelemetry trace.

    The trace has spans for attempts, planner calls, model calls, checks and landed batches. It is made from the
    journal, so a second export has the same span ids. For a running run it contains the finished spans. To export while
    it runs, use `fleet run --otlp URL`. --json prints the trace in OTLP format.

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
