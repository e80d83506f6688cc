"""Gives the tally and the gauges to Prometheus' own library, which encodes them."""

from collections.abc import Callable, Iterator
from threading import Lock
from time import perf_counter

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dashboards.metrics.catalog import METRICS
from dashboards.metrics.gauges import RunsSnapshot, samples
from dashboards.metrics.tally import Histogram, Labels, Tally

FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class Exposition(Collector):
    """Answers scrapes, one at a time. `refresh` brings the tally up to date, `look` takes a snapshot of all runs."""

    def __init__(self, tally: Tally, refresh: Callable[[], None], look: Callable[[], RunsSnapshot]) -> None:
        self._tally, self._refresh, self._look = tally, refresh, look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._lock = Lock()
        self._scrape_seconds = 0.0
        self._known: set[tuple[str, Labels]] | None = None
        """The series that were shown, or counted before the first look."""

    def catch_up(self) -> None:
        """Read what is new, so that the next scrape has less to read."""
        with self._lock:
            self._count()

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` asks for, and its content type."""
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
        """Whether a series is shown for the first time: it begins at zero, or `increase` would miss its first value."""
        known = self._known
        if known is None or (name, labels) in known:
            return False
        known.add((name, labels))
        return True

    def collect(self) -> Iterator[Metric]:
        """Called by the library at each scrape."""
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
