"""Serves figures for Prometheus: journals on one side, the exposition on the other, and a thread that keeps up."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import anyio

from dashboards.metrics.collector import Exposition
from dashboards.metrics.gauges import Picture, Seen
from dashboards.metrics.server import Address, serving
from dashboards.metrics.tally import Tally
from fleet.folders import RunFolder
from fleet.ports import CallGauges
from fleet.watching import Watching, free_bytes

KEEP_UP_S = 1.0  # how often new facts are read, so that no scrape finds many
SAMPLE_S = 0.1


@dataclass(slots=True)
class Live:
    """How the calls to models were when the loop that makes them was asked last; the loop writes, a scrape reads."""

    calls: CallGauges | None = None


@dataclass(frozen=True, slots=True)
class Exporter:
    """Figures that are being served."""

    address: Address
    tally: Tally
    exposition: Exposition
    live: Live

    def commanded(self, seconds: float) -> None:
        """A worker's command ended after so long."""
        self.tally.observe("fleet_box_command_seconds", seconds)

    async def watch_calls(self, look: Callable[[], CallGauges]) -> None:
        """Keep what `look` tells, until this is cancelled. Runs on the loop that makes the calls."""
        while True:
            self.live.calls = look()
            await anyio.sleep(SAMPLE_S)

    async def watch_loop(self) -> None:
        """Measure how late the event loop is that this runs on."""
        while True:
            due = anyio.current_time() + SAMPLE_S
            await anyio.sleep(SAMPLE_S)
            self.tally.observe("fleet_event_loop_delay_seconds", anyio.current_time() - due)


@contextmanager
def exporting(
    folders: Callable[[], Iterable[RunFolder]],
    state_dir: Path,
    address: Address,
    hosts: Collection[str] = (),
) -> Iterator[Exporter]:
    """Serve the figures of the runs that `folders` finds, while the block lasts. Raises `FleetError`."""
    tally, live = Tally(), Live()
    watching = Watching(folders, tally.take)
    exposition = Exposition(tally, watching.refresh, lambda: _picture(watching, state_dir, live.calls))
    with serving(exposition, address, hosts) as there, _keeping_up(exposition):
        yield Exporter(there, tally, exposition, live)


def _picture(watching: Watching, state_dir: Path, calls: CallGauges | None) -> Picture:
    return Picture(
        now=time.time(),
        open=[Seen(state, alive) for state, alive in watching.open()],
        ended=watching.ended(),
        unreadable=watching.unreadable(),
        journal_lag_s=watching.lag_s,
        journal_bytes=watching.journal_bytes(),
        free_bytes=free_bytes(state_dir),
        calls=calls,
    )


@contextmanager
def _keeping_up(exposition: Exposition) -> Iterator[None]:
    over = Event()

    def keep_up() -> None:
        while not over.wait(KEEP_UP_S):
            exposition.catch_up()

    thread = Thread(target=keep_up, name="metrics-journals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
