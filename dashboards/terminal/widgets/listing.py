"""A list that draws only the rows in sight, however many there are, and repaints only those that changed."""

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dashboards.terminal.lines import Line, Page
from dashboards.terminal.palette import Palette

NOTHING = Page(keys=(), draw=lambda *_: (), empty="…")
GUTTER = 2
STEP = 3  # rows a turn of the wheel
Drawn = tuple[Line, bool]


class Listing(Widget, can_focus=True):
    """Shows a page. Its cursor stays on the row it is on, whatever comes or goes above it."""

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

    def __init__(self, palette: Palette, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.palette = palette
        self._page = NOTHING
        self._cursor = self._top = 0
        self._end = True
        self._moved = False
        self._drawn: list[Drawn] = []

    # ---- what is shown

    @property
    def key(self) -> str:
        """Of the row the cursor is on."""
        keys = self._page.keys
        return keys[self._cursor] if self._cursor < len(keys) else ""

    @property
    def cursor(self) -> int:
        return self._cursor

    def show(self, page: Page, *, cursor: int | None = None) -> None:
        """Show `page`; the cursor stays with the key it is on, or goes where it is told."""
        held, self._page = self.key, page
        keys = page.keys
        if cursor is not None:
            self._cursor, self._top, self._end = cursor, 0, page.tail and cursor >= self._last
            self._moved = cursor > 0
        elif page.tail and self._end:
            self._cursor = self._last
        elif not self._moved and not page.tail:
            self._cursor = 0  # nobody has chosen a row yet
        elif held and not page.tail and not (self._cursor < len(keys) and keys[self._cursor] == held) and held in keys:
            self._cursor = keys.index(held)
        self._cursor = max(0, min(self._cursor, self._last))
        self._cursor = self._row_near(self._cursor, 1)
        self._paint()

    def repaint(self, palette: Palette) -> None:
        """All of it, in other colours."""
        self.palette = palette
        self._drawn = []
        self._paint()

    def _paint(self) -> None:
        """Bring the cursor into sight, and have those rows drawn that are not as they were."""
        height, width = self.size.height, self.size.width
        if not height or not width:
            return
        self._into_sight()
        rows = [self._line(y, width) for y in range(height)]
        before, self._drawn = self._drawn, rows
        if len(before) != len(rows):
            self.refresh()
            return
        changed = [Region(0, y, width, 1) for y, (old, new) in enumerate(zip(before, rows, strict=True)) if old != new]
        if changed:
            self.refresh(*changed)

    def _line(self, y: int, width: int) -> Drawn:
        page, room = self._page, width - GUTTER - 1
        if not page.keys:
            return (((f"  {page.empty}", "dim"),) if y == 1 else (), False)
        above = page.head is not None
        if page.head is not None and y == 0:
            return ((" " * GUTTER, ""), *page.head(room)), False
        index = y - above + self._top
        if index >= len(page.keys):
            return (), False
        chosen = index == self._cursor and bool(page.keys[index]) and not page.flows
        mark = ("▌ " if self.has_focus else "│ ") if chosen else " " * GUTTER
        return ((mark, "accent"), *page.draw(index, room)), chosen

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if y >= len(self._drawn):
            return Strip.blank(width, base)
        line, chosen = self._drawn[y]
        strip = self.palette.strip(line, width - 1, base, chosen=chosen and self.has_focus)
        return Strip.join([strip, self.palette.strip(((self._thumb(y), "dim"),), 1, base)])

    def _thumb(self, y: int) -> str:
        """The mark beside the rows that tells where in the whole they are."""
        total, room = len(self._page.keys), self._room
        y -= self._page.head is not None
        if total <= room or y < 0:
            return " "
        size = max(1, room * room // total)
        first = (room - size) * self._top // max(1, total - room)
        return "┃" if first <= y < first + size else " "

    def on_resize(self) -> None:
        self._drawn = []
        self._paint()

    def on_focus(self) -> None:
        self._paint()

    def on_blur(self) -> None:
        self._paint()

    # ---- moving

    @property
    def _last(self) -> int:
        """Where the cursor can stand at most; in a page that is read it stands on the first line in sight."""
        return max(0, len(self._page.keys) - (self._room if self._page.flows else 1))

    @property
    def _room(self) -> int:
        return max(1, self.size.height - (self._page.head is not None))

    def action_move(self, by: int) -> None:
        self._go(self._cursor + by, by)

    def action_page(self, by: int) -> None:
        self._go(self._cursor + by * (self._room - 1), by)

    def action_edge(self, end: int) -> None:
        self._go(self._last if end else 0, -1 if end else 1)
        if not end:
            self._top = 0
            self._paint()

    def action_choose(self) -> None:
        if self.key not in {"", "-"}:
            self.post_message(self.Chosen(self.key))

    def _go(self, to: int, way: int) -> None:
        self._moved = True
        self._cursor = self._row_near(max(0, min(to, self._last)), way)
        self._end = self._cursor >= self._last
        self._paint()

    def _row_near(self, at: int, way: int) -> int:
        """Headings can't be chosen: the next row in the direction of the move, or else the nearest the other way."""
        keys = self._page.keys
        if not keys or keys[at]:
            return at
        down, up = range(at, len(keys)), range(at, -1, -1)
        return (
            next((i for i in (*down, *up) if keys[i]), at)
            if way > 0
            else next((i for i in (*up, *down) if keys[i]), at)
        )

    def _into_sight(self) -> None:
        keys, room = self._page.keys, self._room
        if self._page.flows:
            self._cursor = self._top = max(0, min(self._cursor, self._last))
            return
        above = self._cursor
        while above > 0 and self._cursor - above < room // 3 and not keys[above - 1]:  # the headings that belong to it
            above -= 1
        if above < self._top:
            self._top = above
        elif self._cursor >= self._top + room:
            self._top = self._cursor - room + 1
        self._top = max(0, min(self._top, len(keys) - room))

    # ---- the mouse

    def on_click(self, event: events.Click) -> None:
        index = event.y - (self._page.head is not None) + self._top
        if not self._page.flows and 0 <= index < len(self._page.keys) and self._page.keys[index]:
            again = index == self._cursor
            self._go(index, 1)
            if again or event.chain > 1:
                self.action_choose()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(STEP)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-STEP)
