"""Lines as plain data: pieces of text with a tone each, and columns that fit a width.

Knows neither Textual nor markup of any kind; what comes from outside was made safe before it gets here.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size

from dashboards.safe import safe

Span = tuple[str, str]
"""Text, and its tone: a name such as `good` or `dim`, never a colour."""
Line = tuple[Span, ...]

BLOCKS = "▏▎▍▌▋▊▉█"
NARROWEST = 3
SPARKS = "▁▂▃▄▅▆▇█"


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` cells, cut with an ellipsis."""
    if width <= 0:
        return ""
    size = len(text) if text.isascii() else cell_len(text)
    if size <= width:
        return text + " " * (width - size)
    return f"{set_cell_size(text, width - 1)}…"


def right(text: str, width: int) -> str:
    size = len(text) if text.isascii() else cell_len(text)
    return " " * (width - size) + text if size < width else fit(text, width)


def bar(done: int, total: int, width: int) -> str:
    """How much of the whole is done."""
    eighths = round(width * 8 * done / total) if total else 0
    full, rest = divmod(min(eighths, width * 8), 8)
    part = BLOCKS[rest - 1] if rest else ""
    return ("█" * full + part).ljust(width, "░")


def sparkline(counts: Sequence[int]) -> str:
    top = max(counts, default=0)
    return "".join(SPARKS[min(7, count * 8 // (top + 1))] if count else "▁" for count in counts) if top else ""


def joined(parts: Iterable[Line], width: int, gap: str = "   ") -> Line:
    """As many of `parts` as fit, the first ones first."""
    line: list[Span] = []
    used = 0
    for part in parts:
        size = sum(cell_len(text) for text, _ in part) + (len(gap) if line else 0)
        if used + size > width:
            break
        line += [(gap, ""), *part] if line else part
        used += size
    return tuple(line)


def clipped(line: Line, width: int) -> Line:
    """A line in exactly so many cells."""
    spans, left = [], width
    for text, tone in line:
        if left <= 0:
            break
        size = cell_len(text)
        spans.append((text if size <= left else set_cell_size(text, left), tone))
        left -= min(size, left)
    return (*spans, (" " * left, ""))


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most so many characters, where its words allow it."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > max(20, width):
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def hanging(line: str, width: int) -> str:
    """A line of text, what goes on below it set in a little further than it began."""
    lead = line[: len(line) - len(line.lstrip())]
    return "\n".join(textwrap.wrap(line, max(20, width), subsequent_indent=f"{lead}  "))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the smallest width it makes sense at; `spare` ones go first where there is no room."""

    title: str
    width: int
    spare: int = 0
    grows: int = 0
    """How much of the room that is left it takes, beside other growing ones."""
    to_right: bool = False


def widths(columns: Sequence[Column], total: int) -> list[int]:
    """The width of each column, 0 for one that is left out."""
    shown = {index: column.width for index, column in enumerate(columns)}
    while len(shown) > 1 and sum(shown.values()) + len(shown) - 1 > total:
        victim = max(shown, key=lambda index: (columns[index].spare, index))
        if not columns[victim].spare:
            break
        del shown[victim]
    while sum(shown.values()) + len(shown) - 1 > total and max(shown.values()) > NARROWEST:
        shown[max(shown, key=lambda index: shown[index])] -= 1
    left = total - sum(shown.values()) - (len(shown) - 1)
    growing = {index: columns[index].grows for index in shown if columns[index].grows}
    shares = sum(growing.values())
    for index, share in growing.items() if left > 0 else ():
        shown[index] += left * share // shares
    return [shown.get(index, 0) for index in range(len(columns))]


def row(columns: Sequence[Column], sizes: Sequence[int], cells: Sequence[Span]) -> Line:
    shown_cells = [cell for cell in zip(columns, sizes, cells, strict=True) if cell[1]]
    last = len(shown_cells) - 1
    return tuple(
        ((right if column.to_right else fit)(text, size) + " " * (place < last), tone)
        for place, (column, size, (text, tone)) in enumerate(shown_cells)
    )


def head(columns: Sequence[Column], sizes: Sequence[int], mark: str = "") -> Line:
    titles = [(f"{column.title}{'↓' * (column.title == mark)}", "head") for column in columns]
    return row(columns, sizes, titles)


def matches(needle: str, *texts: str) -> bool:
    """Whether every word of `needle` is in one of `texts`."""
    hay = "\n".join(texts).lower()
    return all(word in hay for word in needle.lower().split())


@dataclass(frozen=True, slots=True)
class Page:
    """What a list shows: a key for each row (empty: it can't be chosen), and how to draw a row that is in sight."""

    keys: Sequence[str]
    draw: Callable[[int, int], Line]
    """Index and width."""
    head: Callable[[int], Line] | None = None
    """The line that stays above, for a width."""
    empty: str = ""
    """What stands there when there are no rows."""
    tail: bool = False
    """Whether it follows its end while one stands there, as logs do."""
    flows: bool = False
    """Whether it is read, not chosen from: keys move the text, and there is no cursor."""


def reading(lines: Sequence[Line], *, empty: str = "", tail: bool = False) -> Page:
    """A page that is read, of lines that are there already."""
    return Page(keys=range_keys(len(lines)), draw=lambda index, _: lines[index], empty=empty, tail=tail, flows=True)


def range_keys(count: int) -> Sequence[str]:
    """Keys for rows that nothing can be done with but be looked at."""
    return ("-",) * count


def heading(text: str, more: str = "") -> Line:
    return ((f"{text}  ", "head"), (more, "dim"))


def shown(text: object, limit: int = 500) -> str:
    """Text from outside, on one line and harmless."""
    return safe(text, limit=limit)


@dataclass(frozen=True, slots=True)
class Wish:
    """How the person wants to see a page."""

    needle: str = ""
    order: str = ""
    height: int = 24
    width: int = 80
    open: frozenset[str] = field(default_factory=frozenset)
