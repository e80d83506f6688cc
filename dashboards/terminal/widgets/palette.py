"""From tones to styles of the theme that holds. Without colour they are bold, dim, underlined or reversed."""

from collections.abc import Iterable, Mapping

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from dashboards.terminal.lines import Line, clipped

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
"""Tones that have a colour, by the theme's names."""
BOLD = frozenset({"bold", "warn", "bad", "head", "keyword", "chosen"})
DIM = frozenset({"dim", "comment"})


class Palette:
    """The styles of one theme."""

    def __init__(self, theme: Mapping[str, str], *, colour: bool) -> None:
        self.colour = colour
        names = {*COLOURS, *BOLD, *DIM, "", "italic"}
        self._styles = {name: self._style(name, theme) for name in names}
        back = theme.get("surface-lighten-2") or theme.get("boost") or theme.get("panel", "")
        self.cursor = Style(bgcolor=_plain(theme.get("panel-lighten-1", back))) if colour else Style(reverse=True)

    def _style(self, tone: str, theme: Mapping[str, str]) -> Style:
        name = COLOURS.get(tone)
        colour = _plain(theme.get(name, "")) if name and self.colour else None
        return Style(
            color=colour or None,
            bold=tone in BOLD or None,
            dim=tone in DIM or None,
            underline=(tone == "head" and not self.colour) or None,
        )

    def strip(self, line: Line, width: int, base: Style, *, chosen: bool = False) -> Strip:
        """A line on the screen, in exactly `width` cells."""
        if chosen:
            base += self.cursor
        if sum(len(text) if text.isascii() else cell_len(text) for text, _ in line) > width > 1:
            line = (*clipped(line, width - 1), ("…", "dim"))
        segments = [Segment(text, base + self._styles.get(tone, Style.null())) for text, tone in line]
        return Strip(segments).adjust_cell_length(width, base)

    def strips(self, lines: Iterable[Line], width: int, base: Style) -> list[Strip]:
        return [self.strip(line, width, base) for line in lines]


def _plain(colour: str) -> str | None:
    """A colour that Rich understands; themes may say more than that, such as an alpha."""
    return colour[:7] if colour.startswith("#") and len(colour) >= 7 else None  # noqa: PLR2004 - #rrggbb
