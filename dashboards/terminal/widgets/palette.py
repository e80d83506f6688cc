"""The style of each tone in the current theme. Without colours, tones are bold, dim, underlined or reversed."""

from collections.abc import Mapping
from typing import Protocol, cast

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from dashboards.terminal.widgets.lines import Line, clipped, line_width

COLOURS: dict[str, str] = {
    "good": "success",
    "bad": "error",
    "warn": "warning",
    "accent": "accent",
    "added": "success",
    "removed": "error",
    "hunk": "accent",
    "keyword": "primary",
    "string": "success",
    "number": "warning",
    "name": "accent",
}
"""The tones that have a colour, and what the theme calls it."""
BOLD = frozenset({"bold", "warn", "bad", "head", "keyword"})
DIM = frozenset({"dim", "comment"})


class Palette:
    """The styles of one theme."""

    def __init__(self, theme: Mapping[str, str], *, colour: bool) -> None:
        self.colour = colour
        self._styles = {name: self._style(name, theme) for name in {*COLOURS, *BOLD, *DIM}}
        self.cursor = Style(bgcolor=_plain(theme.get("panel-lighten-1", ""))) if colour else Style(reverse=True)

    def _style(self, tone: str, theme: Mapping[str, str]) -> Style:
        colour = _plain(theme.get(COLOURS.get(tone, ""), "")) if self.colour else None
        return Style(
            color=colour,
            bold=tone in BOLD or None,
            dim=tone in DIM or None,
            underline=(tone == "head" and not self.colour) or None,
        )

    def strip(self, line: Line, width: int, base: Style, *, selected: bool = False) -> Strip:
        """A line on the screen, in exactly `width` cells."""
        if selected:
            base += self.cursor
        if line_width(line) > width > 1:
            line = (*clipped(line, width - 1), ("…", "dim"))
        segments = [Segment(text, base + self._styles.get(tone, Style.null())) for text, tone in line]
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


def _plain(colour: str) -> str | None:
    """A colour that Rich understands; a theme's colour may have an alpha as well."""
    return colour[:7] if colour.startswith("#") and len(colour) >= 7 else None  # noqa: PLR2004 - #rrggbb
