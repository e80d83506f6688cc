"""A list that draws only visible rows, and repaints only changed ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from dashboards.terminal.lines import Line, Page, Painted, column_at, matches, page_of

GUTTER = 2
MARK = "◆"  # prefix of marked rows
WHEEL_ROWS = 3


class Listing(Painted, can_focus=True):
    """Shows a page. The cursor stays on the same row when rows above it appear or disappear."""

    DEFAULT_CSS = "Listing { height: 1fr; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False),
        Binding("k,up", "move(-1)", "Up", show=False),
        Binding("pagedown,ctrl+d,ctrl+f", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+u,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("g,home", "edge(0)", "Top", show=False),
        Binding("G,end", "edge(1)", "End", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """A row was opened."""

        key: str

    @dataclass
    class HeadPressed(Message):
        """The title of a column was clicked."""

        title: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._page = page_of((), empty="…")
        self._is_marked: Callable[[str], bool] = lambda _: False
        self.cursor = self._top = 0
        self._is_at_end = True
        self._was_moved = False
        self._base = Style.null()
        self._found: int | None = None
        """The line of the last match in a text."""
        self._painted: list[tuple[Line, bool]] = []
        """The lines on the screen, and whether each is selected."""

    # ---- contents

    @property
    def key(self) -> str:
        """The key of the selected row."""
        keys = self._page.keys
        return keys[self.cursor] if self.cursor < len(keys) else ""

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all rows."""
        return self._page.keys

    @property
    def is_text(self) -> bool:
        return self._page.is_text

    def show(
        self, page: Page, *, cursor: int | None = None, is_marked: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Show `page`, with the cursor at row `cursor`, or on the currently selected row."""
        key, self._page, self._is_marked = self.key, page, is_marked
        if cursor is not None:
            self._found = None
            self.cursor, self._top, self._is_at_end = cursor, 0, page.tail and cursor >= self._last
            self._was_moved = cursor > 0
        elif page.tail:
            self.cursor = self._last if self._is_at_end else self.cursor
        elif not self._was_moved:
            self.cursor = 0
        elif key and self.key != key and key in page.keys:
            self.cursor = page.keys.index(key)
        self.cursor = self._nearest_row(max(0, min(self.cursor, self._last)), 1)
        self._paint()

    def repaint(self) -> None:
        self._painted = []
        self._paint()

    def _paint(self) -> None:
        """Scroll to the cursor, and repaint changed rows."""
        height, width = self.size.height, self.size.width
        if not height or not width:
            return
        self._scroll_to_cursor()
        before, self._painted = self._painted, [self._line(y, width) for y in range(height)]
        if len(before) != height:
            self.refresh()
            return
        changed = [y for y in range(height) if before[y] != self._painted[y]]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def _line(self, y: int, width: int) -> tuple[Line, bool]:
        page, room = self._page, width - GUTTER - 1
        if not page.keys:
            return (((f"  {page.empty}", "dim"),) if y == 1 else (), False)
        if page.head is not None and y == 0:
            return ((" " * GUTTER, ""), *page.head(room)), False
        index = y - self._head_lines + self._top
        if index >= len(page.keys):
            return (), False
        is_selected = index == self.cursor and bool(page.keys[index]) and not page.is_text
        bar = ("▌" if self.has_focus else "│") if is_selected else " "
        mark = f"{MARK}{bar}" if self._is_marked(page.keys[index]) else f"{bar} "
        if page.is_text and index == self._found:
            mark = "→ "
        return ((mark, "accent"), *page.draw(index, room)), is_selected

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # computed once: it depends on the styles of all parent widgets
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self._base
        if y >= len(self._painted):
            return Strip.blank(width, base)
        line, is_selected = self._painted[y]
        beside = self._page.beside + GUTTER if self._page.beside is not None else None
        is_lit = is_selected and self.has_focus
        segments = self.palette.segments(line, width - 1, base, selected=is_lit, until=beside)
        return Strip([*segments, *self.palette.segments(((self._thumb(y), "dim"),), 1, base)], width)

    def _thumb(self, y: int) -> str:
        """The scroll bar at line `y`."""
        total, room = len(self._page.keys), self._room
        y -= self._head_lines
        if total <= room or y < 0:
            return " "
        size = max(1, room * room // total)
        first = (room - size) * self._top // max(1, total - room)
        return "┃" if first <= y < first + size else " "

    def on_resize(self) -> None:
        self.repaint()

    def on_focus(self) -> None:
        self._paint()

    def on_blur(self) -> None:
        self._paint()

    # ---- moving

    @property
    def _head_lines(self) -> int:
        return int(self._page.head is not None)

    @property
    def _room(self) -> int:
        """The number of visible rows."""
        return max(1, self.size.height - self._head_lines)

    @property
    def _last(self) -> int:
        """The last row for the cursor. In a text, the cursor is the first visible line."""
        return max(0, len(self._page.keys) - (self._room if self._page.is_text else 1))

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by, by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * (self._room - 1), by)

    def action_edge(self, end: int) -> None:
        self._go(self._last if end else 0, -1 if end else 1)
        if not end:
            self._top = 0
            self._paint()

    def action_choose(self) -> None:
        if self.key not in {"", "-"}:
            self.post_message(self.Chosen(self.key))

    def find(self, words: str, by: int, *, here: bool = False) -> bool:
        """Jump to the next line of a text with these words, wrapping around. Return False if there is none."""
        count, plain = len(self._page.keys), self._page.plain
        start = self.cursor if self._found is None or here else self._found
        for step in range(0 if here else 1, count + 1):
            index = (start + by * step) % count
            if plain is not None and matches(words, plain(index)):
                self._found = index
                self._go(index, 1)
                return True
        return False

    def _go(self, to: int, direction: int) -> None:
        self._was_moved = True
        self.cursor = self._nearest_row(max(0, min(to, self._last)), direction)
        self._is_at_end = self.cursor >= self._last
        self._paint()

    def _nearest_row(self, at: int, direction: int) -> int:
        """The nearest selectable row, preferably in the direction of the move. Headings are not selectable."""
        keys = self._page.keys
        down, up = range(at, len(keys)), range(min(at, len(keys) - 1), -1, -1)
        candidates = chain(down, up) if direction > 0 else chain(up, down)
        return next((index for index in candidates if keys[index]), at)

    def _scroll_to_cursor(self) -> None:
        keys, room = self._page.keys, self._room
        if self._page.is_text:
            self.cursor = self._top = max(0, min(self.cursor, self._last))
            return
        above = self.cursor  # including the headings directly above it
        while above > 0 and self.cursor - above < room // 3 and not keys[above - 1]:
            above -= 1
        if above < self._top:
            self._top = above
        elif self.cursor >= self._top + room:
            self._top = self.cursor - room + 1
        self._top = max(0, min(self._top, len(keys) - room))

    # ---- the mouse

    def on_click(self, event: events.Click) -> None:
        if self._head_lines and event.y == 0:
            title = column_at(self._page.columns, self.size.width - GUTTER - 1, event.x - GUTTER)
            self.post_message(self.HeadPressed(title))
            return
        keys, index = self._page.keys, event.y - self._head_lines + self._top
        is_beside = self._page.beside is not None and event.x >= self._page.beside + GUTTER
        if not self._page.is_text and not is_beside and 0 <= index < len(keys) and keys[index]:
            is_second_click = index == self.cursor or event.chain > 1
            self._go(index, 1)
            if is_second_click:
                self.action_choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-WHEEL_ROWS)
