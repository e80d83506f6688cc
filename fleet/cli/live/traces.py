"""The traces of a run at work, sent to the collector that is configured."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import typer

from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

LAST_S = 10.0  # so long the end of a run may take to arrive


@asynccontextmanager
async def tracing(otlp: str, folder: RunFolder) -> AsyncIterator[None]:
    """Send what is over while the block lasts, and the rest after it. A collector that is down stops no run."""
    if not otlp:
        yield
        return
    from dashboards.traces.exporter import POSITION, TraceExporter  # noqa: PLC0415 - few runs have one
    from dashboards.traces.otlp import collector_address  # noqa: PLC0415

    def complain(text: str) -> None:
        typer.echo(f"{folder.run}: {text}", err=True)

    url = collector_address(otlp)
    with Journal(folder.journal) as journal:
        exporter = TraceExporter(url, folder.run, journal, folder.path / POSITION, complain)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exporter.watch)
            yield
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(LAST_S):
            if not await exporter.flush():
                complain(f"not all traces have arrived; `fleet trace {folder.run} --otlp {url}` sends them")
