"""A trace on a terminal: what a run consisted of, in the order in which it began."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dashboards.text.formats import duration
from dashboards.text.safe import safe
from dashboards.traces.spans import Span

LINE = 100


def trace_lines(spans: Sequence[Span]) -> Iterator[str]:
    """The run with its agents and landings; of what is in them, how many."""
    of = dict[str, list[Span]]()
    for span in spans:
        of.setdefault(span.parent, []).append(span)
    ids = {span.id for span in spans}
    for root in _in_order(span for span in spans if span.parent not in ids):
        yield from _lines(root, of, depth=0)


def _lines(span: Span, of: dict[str, list[Span]], *, depth: int) -> Iterator[str]:
    inside = of.get(span.id, [])
    kinds = Counter(each.name.partition(" ")[0] for each in inside) if depth else Counter[str]()
    counts = f"  ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})" if kinds else ""
    error = f"  ✘ {safe(span.error, limit=LINE)}" if span.error else ""
    yield f"{duration(span.end - span.start):>8}  {'  ' * depth}{safe(span.name, limit=LINE)}{counts}{error}"
    if depth == 0:
        for each in _in_order(inside):
            yield from _lines(each, of, depth=1)


def _in_order(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, span.end))
