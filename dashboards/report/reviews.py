"""Reviews in a report: what models found in changes that they did not make, and what became of it."""

from collections.abc import Iterator

from dashboards.report.blocks import Block, Cell, Code, Paragraph, Table
from dashboards.text.formats import counted
from dashboards.text.review_text import PROBLEM, reviews_line
from dashboards.text.safe import safe
from fleet.core.views.run.review_view import ReviewsView

HEAD = ("subtask", "attempt", "place", "finding", "what became of it")


def review_blocks(view: ReviewsView | None) -> Iterator[Block]:
    if view is None:
        return
    yield Paragraph(f"Reviews: {reviews_line(view)}. A false alarm is a finding whose line landed and stayed.")
    rows: list[list[Cell]] = [
        [
            Code(each.subtask),
            str(each.attempt),
            Code(f"{safe(each.file, limit=PROBLEM)}:{each.line}"),
            safe(each.problem, limit=PROBLEM),
            each.became or "not settled",
        ]
        for each in view.latest
    ]
    if rows:
        yield Table("Findings", HEAD, rows, frozenset({1}))
    if (more := view.findings - len(rows)) > 0:
        yield Paragraph(f"{counted(more, 'more finding')}; `fleet show SUBTASK` prints those of a subtask.")
