"""Lines in the colours of a look: exactly as wide as asked for, whatever they hold."""

import pytest
from rich.segment import Segment
from rich.style import Style

from dashboards.terminal.lines import DARK, PLAIN, Line, Look, Palette

BASE = Style.parse("white on black")
LINES: list[Line] = [
    (),
    (("plain", ""),),
    (("▌ ", "accent"), ("日本語", "good"), (" and more", "dim")),
    (("x" * 50, "bad"), ("y" * 50, "")),
    (("日" * 30, "no such tone"),),
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("width", [1, 2, 7, 20, 100])
@pytest.mark.parametrize("until", [None, 5])
def test_a_line_takes_exactly_the_cells_that_there_are(line: Line, width: int, until: int | None) -> None:
    palette = Palette(DARK)
    strip = palette.strip(line, width, BASE)
    assert strip.cell_length == Segment.get_line_length(list(strip)) == width
    for selected in (False, True):
        segments = palette.segments(line, width, BASE, selected=selected, until=until)
        assert Segment.get_line_length(segments) == width


def test_each_piece_has_its_tone_above_what_is_behind_it() -> None:
    [good, none, rest] = Palette(DARK).segments((("done", "good"), ("?", "no such tone")), 8, BASE)
    assert good.style == BASE + Style.parse(DARK.tones["good"])
    assert none.style == rest.style == BASE


@pytest.mark.parametrize("look", [DARK, PLAIN])
def test_the_cursor_covers_the_cells_before_what_is_beside_it(look: Look) -> None:
    line: Line = (("left ", "good"), ("right", "good"))
    left, right = Palette(look).segments(line, 10, BASE, selected=True, until=5)
    under, good = BASE + Style.parse(look.cursor), Style.parse(look.tones.get("good", ""))
    assert left.style == (under + good if look.keeps_tones else under)
    assert right.style == BASE + good
