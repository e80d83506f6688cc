"""Serves metrics for Prometheus: a thread keeps up with the journals, an HTTP server answers scrapes."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import anyio

from dashboards.address import Address
from dashboards.metrics.gauges import RunsSnapshot
from dashboards.metrics.server import Exposition, serving
from fleet.cli.live.kept_metrics import kept_metrics, was_counted
from fleet.ports.agents import CallGauges
from fleet.read.metric_figures import Transition
from fleet.read.run import RunSnapshot
from fleet.runs.follow import RunsFollower, free_bytes
from fleet.runs.run_folder import RunFolder

READ_S = 1.0  # how often new facts are read, so that no scrape finds many
SAMPLE_S = 0.1


class Exporter:
    """The metrics of the runs that `folders` lists. An engine in this process reports to it."""

    address: Address

    def __init__(self, folders: Callable[[], Iterable[RunFolder]], state_dir: Path) -> None:
        (self._tally, counted), self._state_dir = kept_metrics(state_dir), state_dir
        self._runs = RunsFollower(
            lambda: [folder for folder in folders() if not was_counted(folder, counted)],
            lambda before, fact, after: self._tally.take(Transition(before, fact, after)),
        )
        self._gauges: Callable[[], CallGauges] | None = None
        self._calls: CallGauges | None = None  # the event loop writes it, a scrape reads it
        self.exposition = Exposition(self._tally, self._runs.refresh, self._snapshot)

    def commanded(self, seconds: float) -> None:
        """A worker's command took so long."""
        self._tally.observe("fleet_box_command_seconds", seconds)

    def watch_calls(self, gauges: Callable[[], CallGauges]) -> None:
        self._gauges = gauges

    async def watch_loop(self) -> None:
        """Measure the delay of the event loop that this runs on, and sample the calls that it makes."""
        while True:
            due = anyio.current_time() + SAMPLE_S
            await anyio.sleep(SAMPLE_S)
            self._tally.observe("fleet_event_loop_delay_seconds", anyio.current_time() - due)
            if self._gauges is not None:
                self._calls = self._gauges()

    def _snapshot(self) -> RunsSnapshot:
        runs, now = self._runs, time.time()
        return RunsSnapshot(
            now=now,
            open=[RunSnapshot(state, now, alive) for state, alive in runs.open()],
            ended=runs.ended(),
            recent=runs.latest_ended(),
            unreadable=runs.unreadable(),
            journal_lag_s=runs.lag_s,
            journal_bytes=runs.journal_bytes(),
            free_bytes=free_bytes(self._state_dir),
            calls=self._calls,
        )


@contextmanager
def exporting(
    folders: Callable[[], Iterable[RunFolder]], state_dir: Path, address: Address, hosts: Collection[str] = ()
) -> Iterator[Exporter]:
    """Serve the metrics of the runs that `folders` lists, while the block lasts. Raises `FleetError`."""
    exporter = Exporter(folders, state_dir)
    with serving(exporter.exposition, address, hosts) as exporter.address, _reading(exporter.exposition):
        yield exporter


@contextmanager
def _reading(exposition: Exposition) -> Iterator[None]:
    """Read new facts in a thread, while the block lasts."""
    over = Event()

    def read() -> None:
        while not over.wait(READ_S):
            exposition.catch_up()

    thread = Thread(target=read, name="metrics-journals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
