"""Writes the tables of docs/metrics.md from the catalogue: `python -m dashboards.metrics.page docs/metrics.md`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from dashboards.metrics.catalog import LABELS, SECTIONS, Metric

BEGIN, END = "<!-- from the catalogue: begin -->", "<!-- from the catalogue: end -->"


def tables() -> str:
    """All metrics, by section, and the values of their labels."""
    return "\n".join((*_metrics(), *_labels()))


def renewed(document: str) -> str:
    """`document` with the part between the marks as the catalogue has it."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def _metrics() -> Iterator[str]:
    for section, metrics in SECTIONS.items():
        yield f"### {section}\n"
        yield "| metric | kind | labels | meaning |\n|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.shown}` | {metric.kind} | {labels} | {metric.help}{_where(metric)} |"
        yield ""


def _where(metric: Metric) -> str:
    return " Only where the run is at work in the same process." if metric.live else ""


def _labels() -> Iterator[str]:
    yield "### Labels\n"
    yield "| label | values |\n|---|---|"
    for label, values in LABELS.items():
        yield f"| `{label}` | {values if isinstance(values, str) else ', '.join(f'`{value}`' for value in values)} |"
    yield ""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
