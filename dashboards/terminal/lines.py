"""Lines as plain data: pieces of text with a tone each, columns that fit a width, and pages of such lines.

Knows neither Textual nor markup of any kind; text from outside was made safe before it gets here.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, zip_longest
from operator import itemgetter

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme

from dashboards.subtask_map import Span
from dashboards.text.safe import safe_block

Line = tuple[Span, ...]
Rows = Sequence[tuple[str, Line]]
"""Lines with their keys; a line whose key is empty can't be selected."""
BLANK: tuple[str, Line] = ("", ())

BLOCKS = "▏▎▍▌▋▊▉█"
NARROWEST = 3


def fit(text: str, width: int, *, to_right: bool = False) -> str:
    """`text` in exactly `width` cells, cut with an ellipsis."""
    if width <= 0:
        return ""
    missing = width - _cells(text)
    if missing < 0:
        return f"{set_cell_size(text, width - 1)}…"
    return " " * missing + text if to_right else text + " " * missing


def _cells(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def line_width(line: Line) -> int:
    return sum(_cells(text) for text, _ in line)


def bar(done: int, total: int, width: int) -> str:
    """A bar of `width` cells, filled as far as the work is done."""
    eighths = round(width * 8 * done / total) if total else 0
    full, rest = divmod(min(eighths, width * 8), 8)
    part = BLOCKS[rest - 1] if rest else ""
    return ("█" * full + part).ljust(width, "░")


def joined(parts: Iterable[Line], width: int, gap: str = "   ") -> Line:
    """As many of `parts` as fit, the first ones first."""
    line: list[Span] = []
    used = 0
    for part in parts:
        size = line_width(part) + (len(gap) if line else 0)
        if used + size > width:
            break
        line += [(gap, ""), *part] if line else part
        used += size
    return tuple(line)


def flowed(parts: Iterable[Line], width: int, gap: str = "   ") -> list[Line]:
    """All of `parts`, in as many lines as they take."""
    lines: list[Line] = []
    for part in parts:
        if lines and line_width(lines[-1]) + len(gap) + line_width(part) <= width:
            lines[-1] = (*lines[-1], (gap, ""), *part)
        else:
            lines.append(part)
    return lines


def clipped(line: Line, width: int) -> Line:
    """A line in exactly `width` cells."""
    spans, room = [], width
    for text, tone in line:
        if room <= 0:
            break
        size = cell_len(text)
        spans.append((text if size <= room else set_cell_size(text, room), tone))
        room -= min(size, room)
    return (*spans, (" " * room, ""))


def split_at(line: Line, width: int) -> tuple[Line, Line]:
    """The spans that begin before a cell, and the others."""
    used, place = 0, 0
    for place, (text, _) in enumerate(line):
        if used >= width:
            return line[:place], line[place:]
        used += _cells(text)
    return line, ()


def wrapped(line: str, width: int) -> list[str]:
    """A line of text in several; the continuation lines are indented a little more than the first one."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, max(20, width), subsequent_indent=f"{indent}  ", break_long_words=False) or [""]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Where there is no room, the columns with the highest `spare` are left out first."""

    title: str
    width: int
    """The smallest width at which it makes sense."""
    spare: int = 0
    grows: int = 0
    """Its share of the room that remains, beside other growing columns."""
    to_right: bool = False


def widths(columns: Sequence[Column], total: int) -> list[int]:
    """The width of each column, 0 for one that is left out."""
    sizes = {index: column.width for index, column in enumerate(columns)}
    while len(sizes) > 1 and sum(sizes.values()) + len(sizes) - 1 > total:
        victim = max(sizes, key=lambda index: (columns[index].spare, index))
        if not columns[victim].spare:
            break
        del sizes[victim]
    while sum(sizes.values()) + len(sizes) - 1 > total and max(sizes.values()) > NARROWEST:
        sizes[max(sizes, key=lambda index: sizes[index])] -= 1
    room = max(0, total - sum(sizes.values()) - (len(sizes) - 1))
    shares = sum(columns[index].grows for index in sizes)
    for index in sizes:
        if columns[index].grows:
            sizes[index] += room * columns[index].grows // shares
    return [sizes.get(index, 0) for index in range(len(columns))]


def table_row(columns: Sequence[Column], width: int, cells: Sequence[Span]) -> Line:
    """One row of a table, in at most `width` cells of the screen."""
    sizes = widths(columns, width)
    visible = [cell for cell in zip(columns, sizes, cells, strict=True) if cell[1]]
    return tuple(
        (fit(text, size, to_right=column.to_right) + " " * (place < len(visible)), tone)
        for place, (column, size, (text, tone)) in enumerate(visible, 1)
    )


def column_at(columns: Sequence[Column], width: int, x: int) -> str:
    """The title of the column at a cell of a row; empty where there is none."""
    end = 0
    for column, size in zip(columns, widths(columns, width), strict=True):
        end += size + 1 if size else 0
        if x < end:
            return column.title
    return ""


def table_head(columns: Sequence[Column], width: int, sorted_by: str = "", *, is_reversed: bool = False) -> Line:
    arrow = "↑" if is_reversed else "↓"
    titles = [(f"{column.title}{arrow * (column.title == sorted_by)}", "head") for column in columns]
    return table_row(columns, width, titles)


def matches(needle: str, *texts: str) -> bool:
    """Whether every word of `needle` is in one of `texts`."""
    words = needle.lower().split()
    return not words or all(word in "\n".join(texts).lower() for word in words)


def heading(text: str, more: str = "") -> Line:
    return ((text, "head"), ("  ", ""), (more, "dim"))


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How the person wants to see a page, and how much room there is."""

    needle: str = ""
    """Only rows with these words are shown."""
    order: str = ""
    is_reversed: bool = False
    height: int = 24
    width: int = 80
    opened: frozenset[str] = frozenset()
    """The keys of rows that are shown in full."""

    def no_rows(self, reason: str) -> str:
        """What to show instead of rows."""
        return "No matches." if self.needle else reason


@dataclass(frozen=True, slots=True)
class Page:
    """What a list shows: a key for each row, and a function that draws a row once it is in sight."""

    keys: Sequence[str]
    draw: Callable[[int, int], Line]
    """Takes the index of a row and a width."""
    head: Callable[[int], Line] | None = None
    """The line that stays above the rows, for a width."""
    empty: str = ""
    """Shown when there are no rows."""
    tail: bool = False
    """Whether the page follows its end while the cursor is there, as logs do."""
    beside: int | None = None
    """The cell from which on a row shows something else: the cursor's bar and clicks end there."""
    is_text: bool = False
    """Whether keys scroll the page as text; it has no cursor then."""
    plain: Callable[[int], str] | None = None
    """The words of a line, to find it by."""
    columns: Sequence[Column] = ()
    """Those of the head, if it is that of a table."""


def page_of(rows: Rows, empty: str = "", *, beside: int | None = None) -> Page:
    """A page of lines that are drawn already."""
    return Page(keys=[key for key, _ in rows], draw=lambda index, _: rows[index][1], empty=empty, beside=beside)


def text_page(lines: Sequence[Line], *, empty: str = "", tail: bool = False) -> Page:
    """A page to read."""
    page = page_of([("-", line) for line in lines], empty)
    return replace(page, tail=tail, is_text=True, plain=lambda index: "".join(text for text, _ in lines[index]))


def table_page(
    columns: Sequence[Column],
    keys: Sequence[str],
    cells: Callable[[int], Sequence[Span]],
    *,
    above: Rows = (),
    below: Page | None = None,
    sorted_by: str = "",
    is_reversed: bool = False,
    empty: str = "",
) -> Page:
    """A table whose rows are drawn once they are in sight, with lines above and below them."""

    def draw(index: int, width: int) -> Line:
        if index < len(above):
            return above[index][1]
        number = index - len(above)
        if number < len(keys):
            return table_row(columns, width, cells(number))
        return below.draw(number - len(keys), width) if below is not None else ()

    return Page(
        keys=[*(key for key, _ in above), *keys, *(below.keys if below is not None else ())],
        draw=draw,
        head=lambda width: table_head(columns, width, sorted_by, is_reversed=is_reversed),
        columns=columns,
        empty=empty,
    )


# ---- patch -----------------------------------------------------------------------------------------------------------
# A patch as coloured lines. A line is coloured only once it is in sight, so that a long patch opens at once.


LONGEST = 400  # characters of a line that are coloured; the rest stays plain
LINES = 50_000
TONES = {
    "Keyword": "keyword",
    "String": "string",
    "Comment": "comment",
    "Number": "number",
    "Function": "name",
    "Class": "name",
}
"""The tone of a token, by the last part of its name that is listed here."""


class Tones(SyntaxTheme):
    """Marks tokens with our tones instead of colours: which colours those are depends on the screen."""

    @classmethod
    def get_style_for_token(cls, token_type: Sequence[str]) -> Style:
        tone = next((TONES[part] for part in reversed(tuple(map(str, token_type))) if part in TONES), "")
        return Style(meta={"tone": tone})

    @classmethod
    def get_background_style(cls) -> Style:
        return Style()


def patch_page(patch: str, *, is_split: bool = False) -> Page:
    """A page of a unified diff, or of both sides beside each other. All of it is untrusted text."""
    lines = safe_block(patch, lines=LINES).split("\n")
    files = _files(lines)
    coloured = _colouring()
    if is_split:
        return side_by_side_page(lines, files, coloured)
    return Page(
        keys=("-",) * len(lines),
        draw=lambda index, _: coloured(lines[index], files[index]),
        empty="No changes.",
        is_text=True,
        plain=lambda index: lines[index],
    )


def _files(lines: Sequence[str]) -> list[str]:
    """The file that each line belongs to; empty for the lines above a file's first hunk."""
    names, name, in_hunk = [], "", False
    for line in lines:
        if line.startswith("diff --git "):
            name, in_hunk = line.rpartition(" b/")[2], False
        elif line.startswith("@@"):
            in_hunk = True
        names.append(name if in_hunk else "")
    return names


def _colouring() -> Callable[[str, str], Line]:
    @lru_cache(maxsize=2_000)
    def coloured(line: str, file: str) -> Line:
        if line.startswith("diff --git "):
            return ((line, "head"),)
        if line.startswith("@@"):
            return ((line, "hunk"),)
        if not file:
            return ((line, "dim"),)
        sign, code = line[:1], line[1:]
        tone = {"+": "added", "-": "removed"}.get(sign, "")
        return ((f"{sign} ", tone), *_tokens(code, file, removed=sign == "-"))

    return coloured


def _tokens(code: str, file: str, *, removed: bool) -> Line:
    syntax = _syntax(file.rpartition("/")[2])
    if syntax is None or removed or len(code) > LONGEST:
        return ((code, "removed" if removed else ""),)
    text = syntax.highlight(code)
    tones = [""] * len(code)
    for span in text.spans:
        if isinstance(span.style, Style) and (tone := span.style.meta.get("tone")):
            tones[span.start : span.end] = [tone] * (min(span.end, len(code)) - span.start)
    return tuple(
        ("".join(char for char, _ in group), tone)
        for tone, group in groupby(zip(code, tones, strict=True), key=itemgetter(1))
    )


@lru_cache(maxsize=256)
def _syntax(name: str) -> Syntax | None:
    """The highlighter for a file of this name; None for an unknown kind of file."""
    lexer = Syntax.guess_lexer(name)
    return None if lexer == "default" else Syntax("", lexer, theme=Tones(), tab_size=4)


# ---- side by side ----------------------------------------------------------------------------------------------------
# A patch in two columns: the old lines with their numbers beside the new ones.


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
