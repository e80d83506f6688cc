"""What every full screen of the terminal UI has: a header, a list, a line for the filter and the keys below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from dashboards.terminal.banner import Banner, Button, Buttons
from dashboards.terminal.header import header_lines
from dashboards.terminal.lines import Line, Page, Wish
from dashboards.terminal.listing import Listing

if TYPE_CHECKING:
    from dashboards.terminal.app import FleetApp
    from dashboards.terminal.palette import Palette
    from dashboards.terminal.watched import Watched
    from fleet.core.state import RunState

HEADER = 4  # lines
PARTS = 4  # that are shown something


class View(Screen[None]):
    """One screen over the run that is watched."""

    DEFAULT_CSS = """
    View { layout: vertical; }
    View #filter { height: 1; border: none; padding: 0 1; display: none; }
    View.filtering #filter { display: block; }
    View #tabs { background: $panel; }
    View #keys { background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", show=False),
        Binding("escape", "back", "Back", show=False),
    ]

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette
        self.needle = ""
        self._ready = False
        """Whether its parts are there to be shown something."""

    @property
    def fleet(self) -> FleetApp:
        return cast("FleetApp", self.app)

    def compose(self) -> ComposeResult:
        yield Banner(self._palette, HEADER, id="header")
        yield Buttons(self._palette, id="tabs")
        yield Listing(self._palette, id="list")
        yield Input(placeholder="words that a row must hold", id="filter")
        yield Buttons(self._palette, id="keys")

    def on_unmount(self) -> None:
        self._ready = False

    def on_mount(self) -> None:
        self._ready = True
        self.listing.focus()
        self.refresh_view()

    def on_resize(self) -> None:
        self.refresh_view()

    def on_screen_resume(self) -> None:
        self.refresh_view()

    @property
    def listing(self) -> Listing:
        return self.query_one("#list", Listing)

    def key_here(self) -> str:
        """What the keys that act are about: the row the cursor is on."""
        kind, colon, rest = self.listing.key.partition(":")
        return f"s{colon}{rest}" if kind[:1] in {"e", "i"} else self.listing.key

    # ---- what the screens differ in

    def tabs(self, state: RunState) -> Sequence[Button]:
        raise NotImplementedError

    def keys(self, watched: Watched, state: RunState) -> Sequence[Button]:
        raise NotImplementedError

    def page(self, watched: Watched, state: RunState, wish: Wish) -> Page:
        raise NotImplementedError

    def stirs(self) -> bool:
        """Whether something that the journal does not tell has changed."""
        return False

    # ---- drawing

    def refresh_view(self, *, cursor: int | None = None) -> None:
        """Show what is true now. Costs what changed on the screen."""
        if not self._ready or not self.size.width or len(self.query("#header, #tabs, #list, #keys")) < PARTS:
            return  # not there yet, or about to go
        watched = self.fleet.watched
        state, width = watched.state, max(20, self.size.width - 2)
        if state is None:
            said = "reads the journal" if not watched.loaded else "this run has not begun"
            self.query_one("#header", Banner).show([((f"fleet {watched.feed.run}: {said}", ""),)])
            return
        self.query_one("#header", Banner).show(self._header(watched, state, width))
        self.query_one("#tabs", Buttons).show_buttons(self.tabs(state))
        self.query_one("#keys", Buttons).show_buttons(self.keys(watched, state))
        listing = self.listing
        wish = Wish(needle=self.needle, height=listing.size.height or 24, width=listing.size.width - 3)
        listing.show(self.page(watched, state, wish), cursor=cursor)

    def _header(self, watched: Watched, state: RunState, width: int) -> list[Line]:
        return header_lines(watched, state, width, note=self.fleet.note(), others=self.fleet.in_need())

    def repaint(self, palette: Palette) -> None:
        """In other colours."""
        self._palette = palette
        if not self._ready:
            return
        for banner in self.query(Banner):
            banner.repaint(palette)
        self.listing.repaint(palette)

    # ---- the filter

    def action_filter(self) -> None:
        self.add_class("filtering")
        field = self.query_one("#filter", Input)
        field.value = self.needle
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.needle = event.value
            self.refresh_view(cursor=0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self._end_filter(event.value)

    def _end_filter(self, needle: str) -> None:
        self.needle = needle
        self.set_class(bool(needle), "filtering")
        self.listing.focus()
        self.refresh_view()

    def action_back(self) -> None:
        if self.needle or self.has_class("filtering"):
            self._end_filter("")
        else:
            self.leave()

    def leave(self) -> None:
        """What Esc does where there is no filter."""

    # ---- the mouse

    def on_buttons_pressed(self, message: Buttons.Pressed) -> None:
        message.stop()
        self.press(message.key)

    def press(self, key: str) -> None:
        """Do what a word in the tabs or the footer says."""
        named = {"?": "question_mark", "/": "slash", "Enter": "enter", "Esc": "escape"}
        self.app.call_later(self.app.simulate_key, named.get(key, key))  # as the application, not as this screen


def tab(number: int, word: str, chosen: int) -> Button:
    """The word for a page; brackets, not colours alone, tell which one is shown."""
    here = number == chosen
    return Button(str(number), f"[{word}]" if here else word, "bold" if here else "")
