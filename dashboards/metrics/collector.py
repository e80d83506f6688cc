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
from dashboards.metrics.tally import Tally

FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class Exposition(Collector):
    """Answers scrapes, one at a time. `refresh` brings the tally up to date, `look` takes a snapshot of all runs."""

    def __init__(self, tally: Tally, refresh: Callable[[], None], look: Callable[[], RunsSnapshot]) -> None:
        self._tally, self._refresh, self._look = tally, refresh, look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._lock = Lock()
        self._scrape_seconds = 0.0

    def catch_up(self) -> None:
        """Read what is new, so that the next scrape has less to read."""
        with self._lock:
            self._refresh()

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            started_at = perf_counter()
            page: bytes = encode(self._registry)
            self._scrape_seconds = perf_counter() - started_at
        return page, content_type

    def collect(self) -> Iterator[Metric]:
        """Called by the library at each scrape."""
        self._refresh()
        families = {m.name: FAMILIES[m.kind](m.name, m.help, labels=m.labels) for m in METRICS.values()}
        for name, labels, value in samples(self._look(), self._tally):
            families[name].add_metric(labels, value)
        families["fleet_scrape_seconds"].add_metric((), self._scrape_seconds)
        for name, counter in self._tally.counters.items():
            for labels, value in counter.items():
                families[name].add_metric(labels, value)
        for name, histograms in self._tally.histograms.items():
            for labels, histogram in histograms.items():
                families[name].add_metric(labels, buckets=list(histogram.cumulative()), sum_value=histogram.sum)
        yield from (family for family in families.values() if family.samples)
