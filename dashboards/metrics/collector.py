"""Gives the tally and the gauges to Prometheus' own library, which knows how they are written down."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from time import perf_counter

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from dashboards.metrics.catalog import METRICS
from dashboards.metrics.gauges import Picture, Sample, samples
from dashboards.metrics.tally import Tally

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Exposition:
    """Answers scrapes, one at a time. `refresh` brings the tally up to date, `look` says what is true now."""

    def __init__(self, tally: Tally, refresh: Callable[[], None], look: Callable[[], Picture]) -> None:
        self._tally, self._refresh, self._look = tally, refresh, look
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(self._families))
        self._lock = Lock()
        self._took = 0.0

    def catch_up(self) -> None:
        """Read what is new, so that the next scrape has less to read."""
        with self._lock:
            self._refresh()

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """The page in the format that `accept` asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        with self._lock:
            began = perf_counter()
            page: bytes = encode(self._registry)
            self._took = perf_counter() - began
        return page, content_type

    def _families(self) -> Iterator[Metric]:
        self._refresh()
        picture = self._look()
        families = {metric.name: _family(metric.name) for metric in METRICS.values()}
        for name, labels, value in (*samples(picture, self._tally), ("fleet_scrape_seconds", (), self._took)):
            _add(families[name], (name, labels, value))
        for name, counter in self._tally.counters.items():
            for labels, value in counter.items():
                _add(families[name], (name, labels, value))
        for name, series in self._tally.histograms.items():
            family = families[name]
            assert isinstance(family, HistogramMetricFamily)  # noqa: S101 - as the catalogue says
            for labels, histogram in series.items():
                family.add_metric(labels, buckets=list(histogram.cumulative()), sum_value=histogram.sum)
        yield from (family for family in families.values() if family.samples)


@dataclass(frozen=True, slots=True)
class _Collector:
    """What the library asks at each scrape."""

    collect: Callable[[], Iterator[Metric]]


def _family(name: str) -> Family:
    metric = METRICS[name]
    match metric.kind:
        case "counter":
            return CounterMetricFamily(name, metric.help, labels=metric.labels)
        case "gauge":
            return GaugeMetricFamily(name, metric.help, labels=metric.labels)
        case "histogram":
            return HistogramMetricFamily(name, metric.help, labels=metric.labels)


def _add(family: Family, sample: Sample) -> None:
    _, labels, value = sample
    assert not isinstance(family, HistogramMetricFamily)  # noqa: S101 - as the catalogue says
    family.add_metric(labels, float(value))
