"""Generates the reference of metrics from their catalog."""

from collections.abc import Iterator

from dashboards.metrics.catalog import LABELS, SECTIONS, Metric
from scripts.reference.page import code, table


def content() -> str:
    """Return all metrics by section, and the values of their labels."""
    return "\n\n".join((*_sections(), "### Labels", table(("label", "values"), _labels())))


def _sections() -> Iterator[str]:
    for section, metrics in SECTIONS.items():
        yield f"### {section}"
        yield table(("metric", "kind", "labels", "meaning"), (_row(metric) for metric in metrics))


def _row(metric: Metric) -> tuple[str, ...]:
    scope = " Exported only by the process that executes the run (`fleet run --metrics`)." if metric.live else ""
    return code(metric.series), metric.kind, ", ".join(map(code, metric.labels)), f"{metric.help}{scope}"


def _labels() -> Iterator[tuple[str, str]]:
    for label, values in LABELS.items():
        yield code(label), values if isinstance(values, str) else ", ".join(map(code, values))
