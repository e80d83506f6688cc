"""The style of each tone in the current theme, and what draws with it."""

from typing import Protocol, cast

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from dashboards.terminal.widgets.lines import Line, clipped, line_width, split_at
from dashboards.terminal.widgets.themes import Look


class Palette:
    """The styles of one look."""

    def __init__(self, look: Look) -> None:
        self._styles = {tone: Style.parse(style) for tone, style in look.tones.items()}
        self._cursor, self._keeps_tones = Style.parse(look.cursor), look.keeps_tones

    def strip(self, line: Line, width: int, base: Style, *, selected: bool = False, until: int | None = None) -> Strip:
        """A line on the screen, in exactly `width` cells. Only the cells before `until` are selected."""
        styles = self._styles
        if selected and until is not None and until < width:
            left, right = split_at(line, until)
            parts = self.strip(left, until, base, selected=True), self.strip(right, width - until, base)
            return Strip.join(parts)
        if selected:
            base += self._cursor
            styles = styles if self._keeps_tones else {}
        if line_width(line) > width > 1:
            line = (*clipped(line, width - 1), ("…", "dim"))
        segments = [Segment(text, base + styles.get(tone, Style.null())) for text, tone in line]
        return Strip(segments).adjust_cell_length(width, base)


class HasPalette(Protocol):
    """The application: it changes its palette with the theme."""

    palette: Palette


class Painted(Widget):
    """A widget that is drawn in the colours of the application's palette."""

    @property
    def palette(self) -> Palette:
        return cast("HasPalette", self.app).palette

    def repaint(self) -> None:
        """Draw all of it again, in other colours."""
        self.refresh()
