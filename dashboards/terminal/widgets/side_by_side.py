"""A patch in two columns: the old lines with their numbers beside the new ones."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from dashboards.terminal.widgets.lines import Line, Page, clipped

HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)")
NUMBER = 5  # cells of a line's number
MIDDLE = " │ "


@dataclass(frozen=True, slots=True)
class Side:
    """A line of one side: its number, and the line with its sign."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """Two lines beside each other; what belongs to both is `whole`."""

    file: str
    whole: str | None = None
    old: Side | None = None
    new: Side | None = None


def side_by_side_page(lines: Sequence[str], files: Sequence[str], coloured: Callable[[str, str], Line]) -> Page:
    """A page of the lines of a unified diff. `coloured` gives the colours of a line with its sign."""
    rows = list(_rows(lines, files))

    def draw(index: int, width: int) -> Line:
        row = rows[index]
        if row.whole is not None:
            return coloured(row.whole, row.file)
        half = (width - len(MIDDLE)) // 2
        return (*_half(row.old, row.file, half, coloured), (MIDDLE, "dim"), *_half(row.new, row.file, half, coloured))

    return Page(
        keys=("-",) * len(rows),
        draw=draw,
        empty="No changes.",
        is_text=True,
        plain=lambda index: _plain(rows[index]),
    )


def _half(side: Side | None, file: str, width: int, coloured: Callable[[str, str], Line]) -> Line:
    if side is None:
        return ((" " * width, ""),)
    return ((f"{side.number:>{NUMBER}} ", "dim"), *clipped(coloured(side.text, file), width - NUMBER - 1))


def _plain(row: Row) -> str:
    return row.whole or "\n".join(side.text for side in (row.old, row.new) if side is not None)


def _rows(lines: Sequence[str], files: Sequence[str]) -> Iterator[Row]:
    old = new = 0
    removed, added, current = list[Side](), list[Side](), ""
    for line, file in zip(lines, files, strict=True):
        sign = line[:1] if file and not line.startswith("@@") else ""
        if sign == "-":
            removed.append(Side(old, line))
            old, current = old + 1, file
            continue
        if sign == "+":
            added.append(Side(new, line))
            new, current = new + 1, file
            continue
        yield from _changed(removed, added, current)
        removed, added = [], []
        if sign == " ":
            yield Row(file, old=Side(old, line), new=Side(new, line))
            old, new = old + 1, new + 1
            continue
        if (numbers := HUNK.match(line)) is not None:
            old, new = int(numbers[1]), int(numbers[2])
        yield Row(file, whole=line)
    yield from _changed(removed, added, current)


def _changed(removed: Sequence[Side], added: Sequence[Side], file: str) -> Iterator[Row]:
    for one, other in zip_longest(removed, added):
        yield Row(file, old=one, new=other)
