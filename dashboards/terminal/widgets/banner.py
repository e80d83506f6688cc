"""A few lines that stay where they are: the header, the tabs, the keys. Repaints only what changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dashboards.terminal.lines import Line
from dashboards.terminal.palette import Palette


@dataclass(frozen=True, slots=True)
class Button:
    """A word that can be clicked: what stands before it, the word, and the key that does the same."""

    key: str
    word: str
    tone: str = ""


class Banner(Widget):
    """Lines of text."""

    DEFAULT_CSS = "Banner { width: 1fr; padding: 0 1; }"

    def __init__(self, palette: Palette, height: int, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.styles.height = height
        self.palette = palette
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        before, self._lines = self._lines, list(lines)
        width = self.outer_size.width
        for y in range(max(len(before), len(self._lines))):
            if before[y : y + 1] != self._lines[y : y + 1]:
                self.refresh(Region(0, y, width, 1))

    def repaint(self, palette: Palette) -> None:
        self.palette = palette
        self.refresh()

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        return self.palette.strip(line, self.size.width, self.rich_style)


class Buttons(Banner):
    """One line of words that can be clicked instead of pressing their keys."""

    @dataclass
    class Pressed(Message):
        """A word was clicked."""

        key: str

    def __init__(self, palette: Palette, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(palette, 1, id=id)
        self._places: list[tuple[int, int, str]] = []

    def show_buttons(self, buttons: Sequence[Button]) -> None:
        """As many as there is room for, the first ones first."""
        line: list[tuple[str, str]] = []
        self._places, at = [], 0
        for button in buttons:
            size = cell_len(button.key) + 1 + cell_len(button.word)
            if at + size > max(1, self.size.width):
                break
            line += [("  " if at else "", ""), (button.key, "accent"), (f" {button.word}", button.tone)]
            self._places.append((at, at + size, button.key))
            at += size + 2
        self.show([tuple(line)])

    def on_click(self, event: events.Click) -> None:
        at = event.x - 1
        for first, last, key in self._places:
            if first <= at <= last:
                self.post_message(self.Pressed(key))
