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
        self._combined: dict[Style, dict[str, Style]] = {}

    def strip(self, line: Line, width: int, base: Style) -> Strip:
        """A line on the screen, in exactly `width` cells."""
        return Strip(self.segments(line, width, base), width)

    def segments(
        self, line: Line, width: int, base: Style, *, selected: bool = False, until: int | None = None
    ) -> list[Segment]:
        """The pieces of a line, in exactly `width` cells together. Only the cells before `until` are selected."""
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
        """The style of each tone above another style. There are few of those, and thousands of pieces in a second."""
        if base not in self._combined:
            self._combined[base] = {tone: base + style for tone, style in self._styles.items()}
        return self._combined[base]


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
