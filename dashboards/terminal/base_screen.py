"""What every full screen of the terminal UI has: a header, tabs, a list, the filter and a footer of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from dashboards.terminal.header import header_lines
from dashboards.terminal.widgets.banner import Banner, Button, Buttons, Header
from dashboards.terminal.widgets.lines import Page, PageOptions
from dashboards.terminal.widgets.listing import Listing
from dashboards.terminal.widgets.palette import Painted
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId

if TYPE_CHECKING:
    from dashboards.runs.run_follower import WatchedRun
    from dashboards.terminal.app import FleetApp
    from fleet.core.state.state import RunState

HEADER = 4  # lines
BAR = 1  # the line of the header that is the bar of a replay
PARTS = 4  # widgets that are drawn: header, tabs, list, keys
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
"""What Textual calls the keys of buttons, if not by their label."""


def subtask_of(key: str) -> SubtaskId:
    """The subtask that a row is about, or whose incident it is; empty for other rows."""
    kind, _, rest = key.partition(":")
    return SubtaskId(rest if kind == "s" or kind.startswith("i") else "")


class BaseScreen(Screen[None]):
    """A full screen over the current run. It has pages, numbered as their keys."""

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
        Binding("n", "find(1)", "Find the next", show=False),
        Binding("N", "find(-1)", "Find the previous", show=False),
        Binding("escape", "back", "Back", show=False),
        Binding("backspace", "previous", "The page before", show=False),
    ]

    def __init__(self, numbers: Sequence[int]) -> None:
        """`numbers` are those of its pages, in the order of the tabs."""
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
        yield Input(placeholder="show only rows with these words", id="filter")
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
        """The key of the row that an action concerns: for an event or an incident, its subtask."""
        kind, colon, rest = self.listing.key.partition(":")
        return f"s{colon}{rest}" if kind[:1] in {"e", "i"} else self.listing.key

    # ---- what each screen defines

    def tabs(self, run: WatchedRun, state: RunState) -> Sequence[Button]:
        raise NotImplementedError

    def keys(self, run: WatchedRun, state: RunState) -> Sequence[Button]:
        raise NotImplementedError

    def page(self, run: WatchedRun, state: RunState, options: PageOptions) -> Page:
        raise NotImplementedError

    def has_news(self) -> bool:
        """Whether something outside the journal has changed."""
        return False

    def leave(self) -> None:
        """Called by Esc where there is no filter."""
        raise NotImplementedError

    marks_rows: ClassVar[bool] = False
    """Whether its rows can be marked."""

    def is_marked(self, key: str) -> bool:
        """Whether the subtask of a row is marked."""
        return self.marks_rows and subtask_of(key) in self.fleet.marked

    def action_previous(self) -> None:
        """To what was shown before."""
        self.leave()

    # ---- drawing

    def refresh_view(self, *, cursor: int | None = None) -> None:
        """Draw the current state; only what changed is repainted."""
        if not self.size.width or len(self.query(Painted)) < PARTS:
            return  # not mounted yet, or unmounting
        run, state, width = self.fleet.watched, self.fleet.watched.state, max(20, self.size.width - 2)
        header = self.query_one("#header", Banner)
        if state is None:
            notice = "reading the journal" if not run.loaded else "this run has not started"
            header.show([((f"fleet {run.feed.run}: {notice}", ""),)])
            return
        header.show(header_lines(run, state, width, others=self.fleet.in_need, replay=self.fleet.replay))
        self.query_one("#tabs", Buttons).show_buttons(self.tabs(run, state))
        self.query_one("#keys", Buttons).show_buttons(self.keys(run, state))
        listing = self.listing
        options = PageOptions(needle=self.needle, height=listing.size.height or 24, width=listing.size.width - 3)
        listing.show(self.page(run, state, options), cursor=cursor, is_marked=self.is_marked)

    # ---- pages

    def action_page(self, number: int) -> None:
        if number in self.numbers:
            self.number = number
            self.refresh_view(cursor=self.first_row(number))

    def first_row(self, number: int) -> int:
        """Where the cursor is when a page opens."""
        del number
        return 0

    def action_turn(self, by: int) -> None:
        if self.listing.has_focus:
            place = self.numbers.index(self.number) + by
            self.action_page(self.numbers[place % len(self.numbers)])

    def tab(self, number: int, title: str) -> Button:
        """The label of a page; the current one is in brackets, because colour alone does not show it."""
        is_current = number == self.number
        return Button(str(number), f"[{title}]" if is_current else title, "bold" if is_current else "")

    # ---- copying

    def text_to_copy(self) -> str:
        """What `y` copies: the name under the cursor; empty if there is none."""
        return self.current_key().partition(":")[2]

    def action_copy(self) -> None:
        text = self.text_to_copy()
        if not text:
            self.notify("there is no name under the cursor", markup=False)
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
        """In a text, go to the next line with the words of the filter."""
        if self.listing.is_text:
            self._find(by)

    def _find(self, by: int, *, here: bool = False) -> None:
        if self.needle and not self.listing.find(self.needle, by, here=here):
            self.notify("not found", markup=False)

    def action_back(self) -> None:
        if self.needle or self.has_class("filtering"):
            self._end_filter("")
        elif self.fleet.marked and self.marks_rows:
            self.fleet.mark(frozenset())
        else:
            self.leave()

    # ---- the mouse

    def on_header_pressed(self, message: Header.Pressed) -> None:
        """Seek in a replay where its bar was clicked."""
        message.stop()
        replay = self.fleet.replay
        if replay is not None and message.y == BAR:
            self.fleet.seek(max(0.0, min(1.0, message.share)) * replay.length)

    def on_buttons_pressed(self, message: Buttons.Pressed) -> None:
        """Do what the key of the clicked label does."""
        message.stop()
        key = KEY_NAMES.get(message.key, message.key)
        self.app.call_later(self.app.simulate_key, key)  # as the application, not as this screen
