"""Serve the metrics of runs for Prometheus. Only reads their journals."""

import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Event, Lock, Thread
from time import perf_counter
from typing import Any

import anyio
import typer
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dashboards.address import Address, AllowedHosts, parse_address
from dashboards.metrics.catalog import METRICS
from dashboards.metrics.counted_runs import CountedRuns, free_bytes
from dashboards.metrics.counters import Histogram, Labels, Tally, kept_metrics, was_counted
from dashboards.metrics.gauges import RunsSnapshot, samples
from dashboards.metrics.settings import Metrics
from fleet import __version__
from fleet.app.fleet import Fleet, Measures
from fleet.cli.verbosity import show_note
from fleet.errors import FleetError
from fleet.ports.agents import CallGauges
from fleet.runs.run_folder import RunFolder, all_runs

# ---- collector -------------------------------------------------------------------------------------------------------
# Passes the tally and the gauges to the Prometheus client library, which encodes them.


FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class Exposition(Collector):
    """Answers scrapes, one at a time. `refresh` updates the tally, and `look` takes a snapshot of all runs."""

    def __init__(self, tally: Tally, refresh: Callable[[], None], look: Callable[[], RunsSnapshot]) -> None:
        self._tally, self._refresh, self._look = tally, refresh, look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._lock = Lock()
        self._scrape_seconds = 0.0
        self._known: set[tuple[str, Labels]] | None = None
        """The series already exposed, or counted before the first snapshot."""

    def catch_up(self) -> None:
        """Read new facts in advance of the next scrape."""
        with self._lock:
            self._count()

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that `accept` requests, and the content type."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            started_at = perf_counter()
            page: bytes = encode(self._registry)
            self._scrape_seconds = perf_counter() - started_at
        return page, content_type

    def _count(self) -> None:
        self._refresh()
        if self._known is None:
            tally = (self._tally.counters, self._tally.histograms)
            self._known = {(name, labels) for kind in tally for name, series in kind.items() for labels in series}

    def _is_new(self, name: str, labels: Labels) -> bool:
        """Whether a series is new. A new series starts at zero, or `increase` would miss its first value."""
        known = self._known
        if known is None or (name, labels) in known:
            return False
        known.add((name, labels))
        return True

    def collect(self) -> Iterator[Metric]:
        """Called by the client library at each scrape."""
        self._count()
        families = {m.name: FAMILIES[m.kind](m.name, m.help, labels=m.labels) for m in METRICS.values()}
        for name, labels, value in samples(self._look(), self._tally):
            families[name].add_metric(labels, value)
        families["fleet_scrape_seconds"].add_metric((), self._scrape_seconds)
        for name, counter in self._tally.counters.items():
            for labels, value in counter.items():
                families[name].add_metric(labels, 0 if self._is_new(name, labels) else value)
        for name, histograms in self._tally.histograms.items():
            for labels, histogram in histograms.items():
                shown = Histogram(histogram.bounds) if self._is_new(name, labels) else histogram
                families[name].add_metric(labels, buckets=list(shown.cumulative()), sum_value=shown.sum)
        yield from (family for family in families.values() if family.samples)


# ---- server ----------------------------------------------------------------------------------------------------------


DEFAULT_PORT = 9464
TIMEOUT_S = 10.0  # for receiving a request, and for sending its response
MOST_CONNECTIONS = 8  # at the same time (further ones are closed immediately)
STOP_S = 0.1
PLAIN = "text/plain; charset=utf-8"


@contextmanager
def serving(exposition: Exposition, address: Address, hosts: Collection[str] = ()) -> Iterator[Address]:
    """Answer scrapes inside the block, at the yielded address. Port 0 chooses a free port. Raises `FleetError`."""
    try:
        server = _Server(exposition, address, hosts)
    except OSError as error:
        raise FleetError(
            f"can't serve metrics on {address}: {error.strerror}", hint="choose another port, or 0 for any free port"
        ) from error
    thread = Thread(target=server.serve_forever, args=(STOP_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, exposition: Exposition, address: Address, hosts: Collection[str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.exposition = exposition
        self.hosts = AllowedHosts(address, hosts)
        self._connections = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((address.host, address.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that disconnects is not an error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S
    server_version, sys_version = f"fleet/{__version__}", ""

    def do_GET(self) -> None:
        status, content_type, page = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(page)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    do_HEAD = do_GET  # noqa: N815 - the name that the library calls

    def _answer(self) -> tuple[int, str, bytes]:
        if not self.server.hosts.allows(self.headers.get("Host", "")):
            return 403, PLAIN, b"unknown host; to allow it, add it to metrics.hosts\n"
        match self.path.partition("?")[0]:
            case "/metrics":
                page, content_type = self.server.exposition.scrape(self.headers.get("Accept", ""))
                return 200, content_type, page
            case "/-/healthy":
                return 200, PLAIN, b"fleet is healthy\n"
            case "/":
                return 200, PLAIN, b"fleet: Prometheus metrics are at /metrics\n"
            case _:
                return 404, PLAIN, b"not found; metrics are at /metrics\n"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Do not log requests, because scrapes are frequent."""


# ---- exporter --------------------------------------------------------------------------------------------------------
# The metrics of a set of runs. A thread follows their journals.


READ_S = 1.0  # interval for reading new facts, so that scrapes stay fast
SAMPLE_S = 0.1


class Exporter:
    """The metrics of the runs listed by `folders`. An engine in this process also reports to it."""

    address: Address

    def __init__(self, folders: Callable[[], Iterable[RunFolder]], state_dir: Path) -> None:
        (self._tally, counted), self._state_dir = kept_metrics(state_dir), state_dir
        self._runs = CountedRuns(
            lambda: [folder for folder in folders() if not was_counted(folder, counted)],
            self._tally.take,
        )
        self._gauges: Callable[[], CallGauges] | None = None
        self._calls: CallGauges | None = None  # written by the event loop, read by scrapes
        self.exposition = Exposition(self._tally, self._runs.refresh, self._snapshot)

    def record_command(self, seconds: float) -> None:
        """A worker's command took so long."""
        self._tally.observe("fleet_sandbox_command_seconds", seconds)

    def watch_calls(self, gauges: Callable[[], CallGauges]) -> None:
        self._gauges = gauges

    async def watch_loop(self) -> None:
        """Measure the delay of the current event loop, and sample its model calls."""
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
            open=list(runs.open(now)),
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
    """Serve the metrics of the runs listed by `folders` inside the block. Raises `FleetError`."""
    exporter = Exporter(folders, state_dir)
    with serving(exporter.exposition, address, hosts) as exporter.address, _reading(exporter.exposition):
        yield exporter


@contextmanager
def _reading(exposition: Exposition) -> Iterator[None]:
    """Read new facts in a thread inside the block."""
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


@asynccontextmanager
async def exporting_beside(fleet: Fleet, folder: RunFolder) -> AsyncIterator[Measures | None]:
    """Serve the metrics of one run inside the block. A port conflict does not stop the run."""
    settings = fleet.config.of(Metrics)
    with ExitStack() as stack:
        try:
            address = parse_address(settings.listen)
            exporter = stack.enter_context(exporting(lambda: [folder], fleet.state_dir, address, settings.hosts))
        except FleetError as error:
            typer.echo(f"{folder.run}: metrics not served: {error.text}", err=True)
            yield None
            return
        show_note(f"{folder.run}: metrics at http://{exporter.address}/metrics")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exporter.watch_loop)
            yield exporter.record_command, exporter.watch_calls
            tasks.cancel_scope.cancel()


def scrape_of(state_dir: Path) -> Callable[[str], tuple[bytes, str]]:
    """Return a function that reads the metrics of all runs from their journals at each scrape."""
    return Exporter(lambda: all_runs(state_dir), state_dir).exposition.scrape
