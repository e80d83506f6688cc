"""The base of all full screens: a header, tabs, a list, the filter and a footer of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input

from dashboards.state_history import RunReplay
from dashboards.subtask_map import Need, Span, age, marked, needs_at
from dashboards.terminal.lines import Line, Page, PageOptions, Painted, bar, clipped, fit, joined, line_width
from dashboards.terminal.listing import Listing
from dashboards.text.formats import figure_text, money, rate, sparkline
from dashboards.text.safe import safe, safe_goal
from fleet.core.base.ids import SubtaskId
from fleet.read.figures import RunFigures
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot

if TYPE_CHECKING:
    from dashboards.terminal.app import FleetApp


HEADER = 4  # lines
BAR = 1  # the line of the header with the bar of a replay
PARTS = 4  # drawn widgets: header, tabs, list, keys
END = 10**9  # a cursor at the end of any page
KEY_NAMES = {
    "?": "question_mark",
    "/": "slash",
    "Enter": "enter",
    "Esc": "escape",
    "Space": "space",
    "Backspace": "backspace",
    "*": "asterisk",
    "+": "plus",
    "-": "minus",
    ".": "full_stop",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
}
"""Textual's names of button keys, if they differ from the label."""


def subtask_of(key: str) -> SubtaskId:
    """The subtask of a row, or of the incident in a row. Empty for other rows."""
    kind, _, rest = key.partition(":")
    return SubtaskId(rest if kind == "s" or kind.startswith("i") else "")


class BaseScreen(Screen[None]):
    """A full screen of the current run. Its pages have the numbers of their keys."""

    DEFAULT_CSS = """
    BaseScreen { layout: vertical; }
    BaseScreen #filter { height: 1; border: none; padding: 0 1; display: none; }
    BaseScreen.filtering #filter { display: block; }
    BaseScreen #tabs { background: $panel; }
    BaseScreen #keys { background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, f"page({key})", f"Page {key}", show=False) for key in "012345678"),
        Binding("tab", "turn(1)", "Next page", show=False, priority=True),
        Binding("shift+tab", "turn(-1)", "Previous page", show=False, priority=True),
        Binding("slash", "filter", "Filter", show=False),
        Binding("y", "copy", "Copy", show=False),
        Binding("n", "find(1)", "Next match", show=False),
        Binding("N", "find(-1)", "Previous match", show=False),
        Binding("escape", "back", "Back", show=False),
        Binding("backspace", "previous", "Previous page", show=False),
    ]

    def __init__(self, numbers: Sequence[int]) -> None:
        """`numbers` are the numbers of the pages, in the order of the tabs."""
        super().__init__()
        self.numbers = numbers
        self.number = 1
        self.needle = ""

    @property
    def fleet(self) -> FleetApp:
        return cast("FleetApp", self.app)

    def compose(self) -> ComposeResult:
        yield Header(HEADER, id="header")
        yield Buttons(id="tabs")
        yield Listing(id="list")
        yield Input(placeholder="filter rows by words", id="filter")
        yield Buttons(id="keys")

    def on_mount(self) -> None:
        self.listing.focus()
        self.refresh_view()

    def on_resize(self) -> None:
        self.refresh_view()

    def on_screen_resume(self) -> None:
        self.refresh_view()

    @property
    def listing(self) -> Listing:
        return self.query_one("#list", Listing)

    def current_key(self) -> str:
        """The key of the selected row. For an event or an incident, the key of its subtask."""
        kind, colon, rest = self.listing.key.partition(":")
        return f"s{colon}{rest}" if kind[:1] in {"e", "i"} else self.listing.key

    # ---- for subclasses

    def tabs(self, snapshot: RunSnapshot) -> Sequence[Button]:
        raise NotImplementedError

    def keys(self, snapshot: RunSnapshot) -> Sequence[Button]:
        raise NotImplementedError

    def page(self, run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
        raise NotImplementedError

    def has_news(self) -> bool:
        """Whether something outside the journal has changed."""
        return False

    def leave(self) -> None:
        """Called for Esc without a filter."""
        raise NotImplementedError

    marks_rows: ClassVar[bool] = False
    """Whether its rows can be marked."""

    def is_marked(self, key: str) -> bool:
        """Whether the subtask of a row is marked."""
        return self.marks_rows and subtask_of(key) in self.fleet.marked

    def action_previous(self) -> None:
        """Go back to the previous view."""
        self.leave()

    # ---- drawing

    def refresh_view(self, *, cursor: int | None = None) -> None:
        """Draw the current state. Repaints only changed parts."""
        if not self.size.width or len(self.query(Painted)) < PARTS:
            return  # not mounted yet, or unmounting
        run, width = self.fleet.watched, max(20, self.size.width - 2)
        snapshot = run.snapshot
        header = self.query_one("#header", Banner)
        if snapshot is None:
            notice = "reading the journal" if not run.loaded else "this run has not started"
            header.show([((f"fleet {run.feed.run}: {notice}", ""),)])
            return
        header.show(header_lines(run, snapshot, width, others=self.fleet.in_need, replay=self.fleet.replay))
        self.query_one("#tabs", Buttons).show_buttons(self.tabs(snapshot))
        self.query_one("#keys", Buttons).show_buttons(self.keys(snapshot))
        listing = self.listing
        options = PageOptions(needle=self.needle, height=listing.size.height or 24, width=listing.size.width - 3)
        listing.show(self.page(run, snapshot, options), cursor=cursor, is_marked=self.is_marked)

    # ---- pages

    def action_page(self, number: int) -> None:
        if number in self.numbers:
            self.number = number
            self.refresh_view(cursor=self.first_row(number))

    def first_row(self, number: int) -> int:
        """The initial row of the cursor on a page."""
        del number
        return 0

    def action_turn(self, by: int) -> None:
        if self.listing.has_focus:
            place = self.numbers.index(self.number) + by
            self.action_page(self.numbers[place % len(self.numbers)])

    def tab(self, number: int, title: str) -> Button:
        """The label of a page. The current one is in brackets, so that color is not the only cue."""
        is_current = number == self.number
        return Button(str(number), f"[{title}]" if is_current else title, "bold" if is_current else "")

    # ---- copying

    def text_to_copy(self) -> str:
        """The text that `y` copies: the selected name. Empty if there is none."""
        return self.current_key().partition(":")[2]

    def action_copy(self) -> None:
        text = self.text_to_copy()
        if not text:
            self.notify("nothing to copy here", markup=False)
            return
        self.app.copy_to_clipboard(text)
        self.notify(f"copied: {safe(text, limit=80)}", markup=False)

    # ---- the filter

    def action_filter(self) -> None:
        self.add_class("filtering")
        field = self.query_one("#filter", Input)
        field.value = self.needle
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter" and not self.listing.is_text:
            self.needle = event.value
            self.refresh_view(cursor=0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self._end_filter(event.value)

    def _end_filter(self, needle: str) -> None:
        self.needle = needle
        self.set_class(bool(needle), "filtering")
        self.listing.focus()
        if self.listing.is_text:
            self._find(1, here=True)
        self.refresh_view()

    def action_find(self, by: int) -> None:
        """In a text, jump to the next line that matches the filter."""
        if self.listing.is_text:
            self._find(by)

    def _find(self, by: int, *, here: bool = False) -> None:
        if self.needle and not self.listing.find(self.needle, by, here=here):
            self.notify("no match", markup=False)

    def action_back(self) -> None:
        if self.needle or self.has_class("filtering"):
            self._end_filter("")
        elif self.fleet.marked and self.marks_rows:
            self.fleet.mark(frozenset())
        else:
            self.leave()

    # ---- the mouse

    def on_header_pressed(self, message: Header.Pressed) -> None:
        """Jump to the clicked position of a replay."""
        message.stop()
        replay = self.fleet.replay
        if replay is not None and message.y == BAR:
            self.fleet.seek(max(0.0, min(1.0, message.share)) * replay.length)

    def on_buttons_pressed(self, message: Buttons.Pressed) -> None:
        """Press the key of the clicked label."""
        message.stop()
        key = KEY_NAMES.get(message.key, message.key)
        self.app.call_later(self.app.simulate_key, key)  # as the application, not as this screen


# ---- header ----------------------------------------------------------------------------------------------------------
# The lines above every page: state, goal, progress, cost and pending requests.


BINS = 16
LEAST = 16  # cells reserved for the needs of this run
NARROWEST_NAME = 12
QUIET_S = 60.0
CLOCKS_S = 10.0  # maximum difference between active time and time since the start


def header_lines(
    run: FollowedRun, snapshot: RunSnapshot, width: int, *, others: Sequence[str] = (), replay: RunReplay | None = None
) -> list[Line]:
    """Four lines of at most `width` cells. `others` are other runs that need a person. A replay has a bar."""
    note = "" if replay is None else str(replay)
    return [
        _first(snapshot, width, note),
        ((safe_goal(snapshot.figures.plan_goal, limit=width), "dim"),) if replay is None else scrub_bar(replay, width),
        _progress(run, snapshot, width),
        _with_others(_needs(needs_at(run, snapshot), width if not others else 0), others, width),
    ]


def scrub_bar(replay: RunReplay, width: int) -> Line:
    """The timeline of a replay, with a mark at each failure and each landing."""
    length = replay.length or 1.0
    cells: list[Span] = [("─", "dim")] * width

    def cell(place: float) -> int:
        return min(width - 1, int(place / length * width))

    here = cell(replay.position)
    cells[:here] = [("━", "accent")] * here
    for place in replay.landings:
        cells[cell(place)] = ("┿" if place <= replay.position else "┼", "good")
    for place in replay.failures:
        cells[cell(place)] = ("!", "bad")
    cells[here] = ("●", "bold")
    return tuple(cells)


def _first(snapshot: RunSnapshot, width: int, note: str) -> Line:
    """Name and state on the left, marks on the right. Cuts a long name before leaving out a mark."""
    figures, status = snapshot.figures, [marked(snapshot.word)]
    quiet = snapshot.now - snapshot.last_at
    if snapshot.alive and quiet > QUIET_S and not figures.is_over and not note:
        status.append((f"  quiet for {age(quiet)}", "bold"))
    marks: list[Line] = [((age(figures.seconds), ""),)]  # most important first
    if figures.sandbox == "none":
        marks.append((("NO SANDBOX", "bad"),))
    if note:
        marks.append(((note, "accent"),))
    if figures.rehearsal:
        marks.append((("REHEARSAL", "bold"),))
    if figures.simulated and (figures.for_real or not figures.rehearsal):
        marks.append((("simulated model", "bold"),))
    room = width - line_width(tuple(status)) - sum(line_width(mark) + 2 for mark in marks) - len("fleet   ")
    name = safe(snapshot.run, limit=max(NARROWEST_NAME, min(40, room)))
    passed = snapshot.now - snapshot.started_at
    if passed - figures.seconds > CLOCKS_S:  # events show the time since the start
        marks.append(((f"(started {age(passed)} ago)", "dim"),))
    left: Line = (("fleet ", "dim"), (f"{name}  ", "bold"), *status)
    right = joined(marks, width - line_width(left) - 2, "  ")[::-1]
    return (*left, (" " * max(2, width - line_width(left) - line_width(right)), ""), *right)


def _progress(run: FollowedRun, snapshot: RunSnapshot, width: int) -> Line:
    figures, left = snapshot.figures, snapshot.remaining
    landed, incidents = figures.landed, figures.recovered
    size = 24 if width >= 120 else 12 if width >= 100 else 6  # noqa: PLR2004 - sizes of terminals
    soon = f" ~{age(left.seconds)} left" if left is not None else ""
    whole = f" ~{money(left.dollars)} total" if left is not None and left.dollars is not None else ""
    recovered: Line = (("recovered ", "dim"), (rate(incidents.recovered, incidents.closed), "bold"))
    parts: list[Line] = [
        (
            ("landed ", "dim"),
            (bar(landed.done, landed.total, size), "good"),
            (f" {landed.done}/{landed.total}", "bold"),
            (soon, ""),
        ),
        *(
            ((f"{figure.title} ", "dim"), (figure_text(figure, value).replace(" of ", "/"), "bold"))
            for figure, value in snapshot.shown("terminal")
        ),
        (("spent ", "dim"), (_money(figures), "bold"), (whole, "")),
        recovered if incidents.closed else (("no failures yet", "dim"),),
    ]
    speed = run.commits_an_hour()
    if speed is not None:
        parts.append(((f"{speed:,.0f} commits/h {sparkline(run.landings(BINS))}", ""),))
    return joined(parts, width)


def _money(figures: RunFigures) -> str:
    dollars, minutes = figures.budget_dollars, figures.budget_minutes
    limit = f" of ${dollars:g}" if dollars is not None else ""
    until = f", {minutes:g} min" if minutes is not None else ""
    return f"{money(figures.spent.dollars)}{limit}{until}"


def _needs(needed: Sequence[Need], width: int) -> Line:
    """The most urgent need, as a bar across the full line."""
    if not needed:
        return (("nothing needs you", "dim"),)
    first = needed[0]
    more = f"  (and {len(needed) - 1} more)" if len(needed) > 1 else ""
    how = f"  → {first.how}{more} "
    room = max(LEAST, width - len(how)) if width else 10**6
    text = f" NEEDS YOU {len(needed)}: {first.text}"
    return ((fit(text, room) if width else text, "alert"), (how, "alert"))


def _with_others(line: Line, others: Sequence[str], width: int) -> Line:
    """Add other runs that need a person on the right."""
    if not others:
        return line
    text = f"{safe(others[0], limit=24)} needs you" if len(others) == 1 else f"{len(others)} other runs need you"
    right: Line = ((f"  {text}", "attention"), ("  → 0", "bold"))
    room = width - line_width(right)
    return (*clipped(line, room), *right) if room > LEAST else line


# ---- banner ----------------------------------------------------------------------------------------------------------
# Fixed lines: the header, the tabs, the keys. Repaints only changed lines.


class Banner(Painted):
    """Lines of text."""

    DEFAULT_CSS = "Banner { width: 1fr; padding: 0 1; }"

    def __init__(self, height: int, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.styles.height = height
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        before, self._lines = self._lines, list(lines)
        for y in range(max(len(before), len(self._lines))):
            if before[y : y + 1] != self._lines[y : y + 1]:
                self.refresh(Region(0, y, self.outer_size.width, 1))

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        return self.palette.strip(line, self.size.width, self.rich_style)


class Header(Banner):
    """The header lines. Reports the position of clicks."""

    @dataclass
    class Pressed(Message):
        """A line was clicked."""

        y: int
        share: float
        """The horizontal position, from 0 to 1."""

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Pressed(event.y, (event.x - 1) / max(1, self.size.width)))


@dataclass(frozen=True, slots=True)
class Button:
    """A clickable label with its key."""

    key: str
    label: str
    tone: str = ""


class Buttons(Banner):
    """A line of clickable labels with their keys."""

    @dataclass
    class Pressed(Message):
        """A label was clicked."""

        key: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(1, id=id)
        self._places: list[tuple[int, int, str]] = []

    def show_buttons(self, buttons: Sequence[Button]) -> None:
        """Show as many buttons as fit, in order."""
        line: list[tuple[str, str]] = []
        self._places, at = [], 0
        for button in buttons:
            label: Line = ((button.key, "accent"), (f" {button.label}", button.tone))
            size = line_width(label)
            if at + size > max(1, self.size.width):
                break
            line += [("  " if at else "", ""), *label]
            self._places.append((at, at + size, button.key))
            at += size + 2
        self.show([tuple(line)])

    def on_click(self, event: events.Click) -> None:
        at = event.x - 1
        for first, last, key in self._places:
            if first <= at <= last:
                self.post_message(self.Pressed(key))
