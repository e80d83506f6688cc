"""The verb `fleet trace`."""

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
