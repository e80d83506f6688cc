"""A few lines that stay in place: the header, the tabs, the keys. Only changed lines are repainted."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from dashboards.terminal.widgets.lines import Line, line_width
from dashboards.terminal.widgets.themes import Painted


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
    """Lines that say where they were clicked."""

    @dataclass
    class Pressed(Message):
        """A line was clicked."""

        y: int
        share: float
        """How far to the right, from 0 to 1."""

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Pressed(event.y, (event.x - 1) / max(1, self.size.width)))


@dataclass(frozen=True, slots=True)
class Button:
    """A label that can be clicked, and the key that does the same, which is shown before it."""

    key: str
    label: str
    tone: str = ""


class Buttons(Banner):
    """One line of labels that can be clicked instead of pressing their keys."""

    @dataclass
    class Pressed(Message):
        """A label was clicked."""

        key: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(1, id=id)
        self._places: list[tuple[int, int, str]] = []

    def show_buttons(self, buttons: Sequence[Button]) -> None:
        """Show as many as there is room for, the first ones first."""
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
