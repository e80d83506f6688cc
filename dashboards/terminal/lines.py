"""Lines as plain data: text spans with tones, columns that fit a width, and pages of lines.

Uses neither Textual nor markup. Callers make untrusted text safe first.
"""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme
from textual.widget import Widget

from dashboards.subtask_map import Span
from dashboards.text.formats import clock_in, counted
from fleet.read.agent_rows import AgentOrder
from fleet.read.follow import Event, FollowedRun
from fleet.read.run import RunSnapshot

Line = tuple[Span, ...]
Rows = Sequence[tuple[str, Line]]
"""Lines with their keys. A line with an empty key can't be selected."""
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
    """A progress bar of `width` cells."""
    eighths = round(width * 8 * done / total) if total else 0
    full, rest = divmod(min(eighths, width * 8), 8)
    part = BLOCKS[rest - 1] if rest else ""
    return ("█" * full + part).ljust(width, "░")


def joined(parts: Iterable[Line], width: int, gap: str = "   ") -> Line:
    """Join as many of `parts` as fit, in order."""
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
    """Join all of `parts` in as many lines as needed."""
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
    """Split the spans at a cell."""
    used, place = 0, 0
    for place, (text, _) in enumerate(line):
        if used >= width:
            return line[:place], line[place:]
        used += _cells(text)
    return line, ()


def wrapped(line: str, width: int) -> list[str]:
    """Wrap a line of text. Continuation lines have additional indentation."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, max(20, width), subsequent_indent=f"{indent}  ", break_long_words=False) or [""]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. In a narrow table, the columns with the highest `spare` are left out first."""

    title: str
    width: int
    """The minimum width."""
    spare: int = 0
    grows: int = 0
    """The share of the remaining width, relative to other growing columns."""
    to_right: bool = False


def widths(columns: Sequence[Column], total: int) -> list[int]:
    """The width of each column. 0 means that the column is left out."""
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
    """A row of a table in at most `width` cells."""
    sizes = widths(columns, width)
    visible = [cell for cell in zip(columns, sizes, cells, strict=True) if cell[1]]
    return tuple(
        (fit(text, size, to_right=column.to_right) + " " * (place < len(visible)), tone)
        for place, (column, size, (text, tone)) in enumerate(visible, 1)
    )


def column_at(columns: Sequence[Column], width: int, x: int) -> str:
    """The title of the column at a cell of a row. Empty if there is none."""
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
    """The view options of a page, and its size."""

    needle: str = ""
    """The words of the filter."""
    order: AgentOrder = "busy"
    is_reversed: bool = False
    height: int = 24
    width: int = 80
    opened: frozenset[str] = frozenset()
    """The keys of rows shown in full."""

    def no_rows(self, reason: str) -> str:
        """The text to show instead of rows."""
        return "No matches." if self.needle else reason


@dataclass(frozen=True, slots=True)
class Page:
    """The contents of a list: a key for each row, and a function that draws visible rows."""

    keys: Sequence[str]
    draw: Callable[[int, int], Line]
    """Draw the row with an index, at a width."""
    head: Callable[[int], Line] | None = None
    """Draw the fixed line above the rows, at a width."""
    empty: str = ""
    """Shown instead of rows on an empty page."""
    tail: bool = False
    """Whether the page follows new rows while the cursor is at the end."""
    beside: int | None = None
    """The first cell of a second column of content, which is not part of the selectable row."""
    is_text: bool = False
    """Whether keys scroll the page as text, without a cursor."""
    plain: Callable[[int], str] | None = None
    """The plain text of a line, for searches."""
    columns: Sequence[Column] = ()
    """The columns of the head, for a table."""


def page_of(rows: Rows, empty: str = "", *, beside: int | None = None) -> Page:
    """A page of lines that are already drawn."""
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
    """A table that draws only visible rows, with lines above and below them."""

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


# ---- themes ----------------------------------------------------------------------------------------------------------
# The themes: light and dark in true color, and in the 16 colors of the terminal.
#
# The color `attention` is reserved for requests to a person. Every text has a contrast of at least 4.5.


Tone = str
"""The meaning of a span of text: `busy`, `good`, `attention`. Never a color."""


@dataclass(frozen=True, slots=True)
class Look:
    """A theme, with the Rich style of each tone."""

    theme: Theme
    tones: Mapping[Tone, str]
    cursor: str
    """The style of the selected row."""
    keeps_tones: bool = True
    """Whether the selected row keeps the colors of its text."""


def _look(
    name: str,
    *,
    dark: bool,
    ink: str,
    dim: str,
    paper: str,
    panel: str,
    cursor: str,
    busy: str,
    check: str,
    queue: str,
    good: str,
    bad: str,
    attention: str,
) -> Look:
    theme = Theme(
        name,
        primary=busy,
        secondary=check,
        accent=busy,
        warning=attention,
        error=bad,
        success=good,
        foreground=ink,
        background=paper,
        surface=paper,
        panel=panel,
        dark=dark,
        text_alpha=1.0,
    )
    tones = {
        "busy": busy,
        "check": check,
        "queue": queue,
        "good": good,
        "bad": f"bold {bad}",
        "attention": f"bold {attention}",
        "alert": f"bold {paper} on {attention}",
        "accent": busy,
        "dim": dim,
        "comment": dim,
        "added": good,
        "removed": bad,
        "hunk": busy,
        "keyword": f"bold {busy}",
        "string": good,
        "number": queue,
        "name": check,
        "bold": "bold",
        "head": "bold",
    }
    return Look(theme, tones, f"on {cursor}")


DARK = _look(
    "fleet-dark",
    dark=True,
    ink="#e6edf3",
    dim="#9aa5b1",
    paper="#12161c",
    panel="#1b2129",
    cursor="#2a3646",
    busy="#6cb0ff",
    check="#4fd1d9",
    queue="#cfa8ff",
    good="#5fd39a",
    bad="#ff8f85",
    attention="#ffc14d",
)
LIGHT = _look(
    "fleet-light",
    dark=False,
    ink="#1c2128",
    dim="#4d5661",
    paper="#ffffff",
    panel="#eef1f4",
    cursor="#dbe7f6",
    busy="#0a56b3",
    check="#07606e",
    queue="#6f2da8",
    good="#0b6640",
    bad="#a8221b",
    attention="#7d4600",
)


def _name(name: str, *, dark: bool, tones: Mapping[Tone, str]) -> Look:
    """A theme in the colors of the terminal. The selected row is reversed, in one color."""
    # yellow, green and cyan are not legible on light terminals, which use bold instead
    theme = Theme(
        name,
        primary="ansi_bright_cyan" if dark else "ansi_blue",
        accent="ansi_bright_cyan" if dark else "ansi_blue",
        warning="ansi_bright_yellow" if dark else "ansi_default",
        error="ansi_bright_red" if dark else "ansi_red",
        success="ansi_bright_green" if dark else "ansi_default",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        dark=dark,
        ansi=True,
        variables=BUILTIN_THEMES["ansi-dark" if dark else "ansi-light"].variables,
    )
    common = {"alert": "black on bright_yellow", "dim": "", "comment": "", "bold": "bold", "head": "bold underline"}
    return Look(theme, {**tones, **common}, "reverse", keeps_tones=False)


DARK_16 = _name(
    "fleet-dark-16",
    dark=True,
    tones={
        "busy": "bright_cyan",
        "check": "cyan",
        "queue": "bright_magenta",
        "good": "bright_green",
        "bad": "bold bright_red",
        "attention": "bold bright_yellow",
        "accent": "bright_cyan",
        "added": "bright_green",
        "removed": "bright_red",
        "hunk": "bright_cyan",
        "keyword": "bold",
        "string": "bright_green",
        "number": "bright_magenta",
        "name": "cyan",
    },
)
LIGHT_16 = _name(
    "fleet-light-16",
    dark=False,
    tones={
        "busy": "blue",
        "check": "blue",
        "queue": "blue",
        "good": "bold",
        "bad": "bold red",
        "attention": "black on bright_yellow",
        "accent": "blue",
        "added": "bold",
        "removed": "red",
        "hunk": "blue",
        "keyword": "bold",
        "string": "",
        "number": "",
        "name": "bold",
    },
)
PLAIN = Look(
    DARK.theme,
    {
        "bad": "bold",
        "attention": "bold",
        "alert": "bold reverse",
        "keyword": "bold",
        "bold": "bold",
        "head": "bold underline",
        "dim": "dim",
        "comment": "dim",
    },
    "reverse",
    keeps_tones=False,
)
"""The theme without colors (`NO_COLOR`): bold, dim, underlined and reversed."""
LOOKS: Mapping[str, Look] = {look.theme.name: look for look in (DARK, LIGHT, DARK_16, LIGHT_16)}


# ---- palette ---------------------------------------------------------------------------------------------------------
# The style of each tone in the current theme, and the widgets that use it.


class Palette:
    """The styles of one look."""

    def __init__(self, look: Look) -> None:
        self._styles = {tone: Style.parse(style) for tone, style in look.tones.items()}
        self._cursor, self._keeps_tones = Style.parse(look.cursor), look.keeps_tones
        self._combined: dict[Style, dict[str, Style]] = {}

    def strip(self, line: Line, width: int, base: Style) -> Strip:
        """Render a line in exactly `width` cells."""
        return Strip(self.segments(line, width, base), width)

    def segments(
        self, line: Line, width: int, base: Style, *, selected: bool = False, until: int | None = None
    ) -> list[Segment]:
        """The segments of a line in exactly `width` cells. Only the cells before `until` are selected."""
        if selected and until is not None and until < width:
            left, right = split_at(line, until)
            return [*self.segments(left, until, base, selected=True), *self.segments(right, width - until, base)]
        keeps_tones = True
        if selected:
            base, keeps_tones = base + self._cursor, self._keeps_tones
        taken = line_width(line)
        if taken > width:
            line = (*clipped(line, width - 1), ("…", "dim")) if width > 1 else clipped(line, width)
            taken = width
        styles = self._styles_on(base) if keeps_tones else {}
        segments = [Segment(text, styles.get(tone, base)) for text, tone in line]
        return [*segments, Segment(" " * (width - taken), base)] if taken < width else segments

    def _styles_on(self, base: Style) -> dict[str, Style]:
        """The style of each tone on a base style. Cached: there are few base styles and thousands of segments."""
        if base not in self._combined:
            self._combined[base] = {tone: base + style for tone, style in self._styles.items()}
        return self._combined[base]


class HasPalette(Protocol):
    """The application, which changes its palette with the theme."""

    palette: Palette


class Painted(Widget):
    """A widget drawn in the colors of the application's palette."""

    @property
    def palette(self) -> Palette:
        return cast("HasPalette", self.app).palette

    def repaint(self) -> None:
        """Redraw everything after a change of colors."""
        self.refresh()


# ---- events ----------------------------------------------------------------------------------------------------------
# One line per event.


def event_line(run: RunSnapshot, event: Event, *, more: bool = False) -> Line:
    """The line of an event. `more` adds the number of omitted lines."""
    rest: Line = ((f"  (+{counted(event.more, 'line')}: press 6)", "dim"),) if more and event.more else ()
    return ((f"{clock_in(run, event.at)}  ", "dim"), (event.text, event.tone), *rest)


def events_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    """All events, newest last."""
    events = list(run.events)
    if options.needle:
        events = [event for event in events if matches(options.needle, event.text)]
    return Page(
        keys=[event.key for event in events],
        draw=lambda index, _: event_line(snapshot, events[index]),
        empty=options.no_rows("No events yet."),
        tail=True,
    )
