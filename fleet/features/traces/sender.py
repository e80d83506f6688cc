"""Sends the spans of a run to a collector during the run, each when it has ended.

The position in the journal is kept in a file next to it. After a crash, later spans are sent again with the same ids.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import typer

from fleet.app.fleet import Fleet
from fleet.core.history.evolve import SLICE, FactSource
from fleet.errors import FleetError
from fleet.features.traces.settings import Traces
from fleet.features.traces.spans import AT_ONCE, Span, Spans, collector_address, send
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

LAST_S = 10.0  # time limit for the last spans of a run
POSITION = "traces.position"
POLL_S, RETRY_S = 1.0, 10.0


@dataclass(slots=True)
class TraceExporter:
    """Sends the trace of one run."""

    url: str
    run: str
    source: FactSource
    position: Path
    """The file with the number of the last fact whose spans were delivered."""
    complain: Callable[[str], None]
    """Called once per outage of the collector."""
    _spans: Spans = field(default_factory=Spans)
    _read: int = 0
    _sent: int = -1
    _waiting: list[Span] = field(default_factory=list)
    _is_down: bool = False

    async def watch(self) -> None:
        while True:
            arrived = await self.flush()
            await anyio.sleep(POLL_S if arrived else RETRY_S)

    async def flush(self) -> bool:
        """Send the spans that ended. Return False if the collector did not accept them; the next call retries."""
        if self._sent < 0:
            self._sent = self._kept()
        while True:
            facts = [] if len(self._waiting) >= AT_ONCE else self.source.facts(self._read, SLICE)
            for seq, fact in facts:
                found = self._spans.take(seq, fact)
                self._read = seq
                if seq > self._sent:
                    self._waiting += found
            if len(facts) == SLICE and len(self._waiting) < AT_ONCE:
                continue
            if not self._waiting:
                return True
            try:
                with anyio.CancelScope(shield=True):  # a canceled request may have arrived and would be sent twice
                    await send(self.url, self._waiting, self.run)
                    self._waiting.clear()
                    self._keep()
            except FleetError as error:
                if not self._is_down:
                    self.complain(f"{error} (fleet will retry)")
                self._is_down = True
                return False
            self._is_down = False

    def _kept(self) -> int:
        with suppress(OSError, ValueError):
            return int(self.position.read_text(encoding="ascii"))
        return 0

    def _keep(self) -> None:
        """Store the position. If it is lost, all spans are sent again."""
        self._sent = self._read
        with suppress(OSError):
            self.position.write_text(f"{self._read}", encoding="ascii")


@asynccontextmanager
async def sending_traces(fleet: Fleet, folder: RunFolder) -> AsyncIterator[None]:
    """Send spans during the block and the remaining ones after it. An unreachable collector does not stop the run."""

    def complain(text: str) -> None:
        typer.echo(f"{folder.run}: {text}", err=True)

    url = collector_address(fleet.config.of(Traces).otlp)
    with Journal(folder.journal) as journal:
        exporter = TraceExporter(url, folder.run, journal, folder.path / POSITION, complain)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exporter.watch)
            yield
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(LAST_S):
            if not await exporter.flush():
                complain(f"some spans were not delivered. To send them, run `fleet trace {folder.run} --otlp {url}`")
