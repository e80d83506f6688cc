"""Our themes: light and dark in true colour, and in the 16 colours that a terminal names itself.

One colour, `attention`, means that a person must act; nothing else has it. Every text has a contrast of 4.5 at least.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme
from textual.widget import Widget

from dashboards.terminal.lines import Line, clipped, line_width, split_at

Tone = str
"""What a piece of text is about: `busy`, `good`, `attention`; never a colour."""


@dataclass(frozen=True, slots=True)
class Look:
    """A theme, and the style of each tone in Rich's words."""

    theme: Theme
    tones: Mapping[Tone, str]
    cursor: str
    """The style of the row under the cursor."""
    keeps_tones: bool = True
    """Whether that row keeps the colours of its text."""


def _look(
    name: str,
    *,
    dark: bool,
    ink: str,
    dim: str,
    paper: str,
    panel: str,
    cursor: str,
    busy: str,
    check: str,
    queue: str,
    good: str,
    bad: str,
    attention: str,
) -> Look:
    theme = Theme(
        name,
        primary=busy,
        secondary=check,
        accent=busy,
        warning=attention,
        error=bad,
        success=good,
        foreground=ink,
        background=paper,
        surface=paper,
        panel=panel,
        dark=dark,
        text_alpha=1.0,
    )
    tones = {
        "busy": busy,
        "check": check,
        "queue": queue,
        "good": good,
        "bad": f"bold {bad}",
        "attention": f"bold {attention}",
        "alert": f"bold {paper} on {attention}",
        "accent": busy,
        "dim": dim,
        "comment": dim,
        "added": good,
        "removed": bad,
        "hunk": busy,
        "keyword": f"bold {busy}",
        "string": good,
        "number": queue,
        "name": check,
        "bold": "bold",
        "head": "bold",
    }
    return Look(theme, tones, f"on {cursor}")


DARK = _look(
    "fleet-dark",
    dark=True,
    ink="#e6edf3",
    dim="#9aa5b1",
    paper="#12161c",
    panel="#1b2129",
    cursor="#2a3646",
    busy="#6cb0ff",
    check="#4fd1d9",
    queue="#cfa8ff",
    good="#5fd39a",
    bad="#ff8f85",
    attention="#ffc14d",
)
LIGHT = _look(
    "fleet-light",
    dark=False,
    ink="#1c2128",
    dim="#4d5661",
    paper="#ffffff",
    panel="#eef1f4",
    cursor="#dbe7f6",
    busy="#0a56b3",
    check="#07606e",
    queue="#6f2da8",
    good="#0b6640",
    bad="#a8221b",
    attention="#7d4600",
)


def _named(name: str, *, dark: bool, tones: Mapping[Tone, str]) -> Look:
    """A theme in the colours of the terminal. A row under the cursor is reversed, in one colour."""
    # a light terminal's yellow, green and cyan can't be read as text: bold stands for them there
    theme = Theme(
        name,
        primary="ansi_bright_cyan" if dark else "ansi_blue",
        accent="ansi_bright_cyan" if dark else "ansi_blue",
        warning="ansi_bright_yellow" if dark else "ansi_default",
        error="ansi_bright_red" if dark else "ansi_red",
        success="ansi_bright_green" if dark else "ansi_default",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        dark=dark,
        ansi=True,
        variables=BUILTIN_THEMES["ansi-dark" if dark else "ansi-light"].variables,
    )
    common = {"alert": "black on bright_yellow", "dim": "", "comment": "", "bold": "bold", "head": "bold underline"}
    return Look(theme, {**tones, **common}, "reverse", keeps_tones=False)


DARK_16 = _named(
    "fleet-dark-16",
    dark=True,
    tones={
        "busy": "bright_cyan",
        "check": "cyan",
        "queue": "bright_magenta",
        "good": "bright_green",
        "bad": "bold bright_red",
        "attention": "bold bright_yellow",
        "accent": "bright_cyan",
        "added": "bright_green",
        "removed": "bright_red",
        "hunk": "bright_cyan",
        "keyword": "bold",
        "string": "bright_green",
        "number": "bright_magenta",
        "name": "cyan",
    },
)
LIGHT_16 = _named(
    "fleet-light-16",
    dark=False,
    tones={
        "busy": "blue",
        "check": "blue",
        "queue": "blue",
        "good": "bold",
        "bad": "bold red",
        "attention": "black on bright_yellow",
        "accent": "blue",
        "added": "bold",
        "removed": "red",
        "hunk": "blue",
        "keyword": "bold",
        "string": "",
        "number": "",
        "name": "bold",
    },
)
PLAIN = Look(
    DARK.theme,
    {
        "bad": "bold",
        "attention": "bold",
        "alert": "bold reverse",
        "keyword": "bold",
        "bold": "bold",
        "head": "bold underline",
        "dim": "dim",
        "comment": "dim",
    },
    "reverse",
    keeps_tones=False,
)
"""Without colours (`NO_COLOR`): bold, dim, underlined and reversed."""
LOOKS: Mapping[str, Look] = {look.theme.name: look for look in (DARK, LIGHT, DARK_16, LIGHT_16)}


# ---- palette ---------------------------------------------------------------------------------------------------------
# The style of each tone in the current theme, and what draws with it.


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
