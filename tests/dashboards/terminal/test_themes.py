"""The terminal UI's colours: every text can be read, and attention has a colour of its own."""

from collections.abc import Iterator

import pytest
from rich.color import Color
from rich.style import Style

from dashboards.subtask_map import MARKS
from dashboards.terminal.lines import DARK, DARK_16, LIGHT, LIGHT_16, LOOKS, PLAIN, Look

AA = 4.5
Rgb = tuple[int, int, int]
XTERM: tuple[Rgb, ...] = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255)),
    (255, 255, 255),
)
VGA: tuple[Rgb, ...] = (
    *((0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170), (0, 170, 170), (170, 170, 170)),
    *((85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85), (85, 85, 255), (255, 85, 255), (85, 255, 255)),
    (255, 255, 255),
)


def luminance(rgb: Rgb) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    red, green, blue = ((c / 255) / 12.92 if c <= 10 else (((c / 255) + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Rgb, other: Rgb) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def rgb(colour: str | None) -> Rgb:
    assert colour is not None
    return tuple(Color.parse(colour).get_truecolor())  # type: ignore[return-value] # three numbers


def texts(look: Look) -> Iterator[tuple[str, Rgb, Rgb]]:
    """Each tone on each background that it can stand on."""
    theme = look.theme
    for tone, words in look.tones.items():
        style = Style.parse(words)
        front = rgb(style.color.name if style.color else theme.foreground)
        backs = [theme.background, theme.surface, theme.panel, Style.parse(look.cursor).bgcolor.name]  # type: ignore[union-attr]
        if style.bgcolor is not None:
            backs = [style.bgcolor.name]
        for back in backs:
            yield f"{tone} on {back}", front, rgb(back)


@pytest.mark.parametrize("look", [DARK, LIGHT], ids=lambda look: look.theme.name)
def test_every_text_has_the_contrast_of_aa_on_every_background(look: Look) -> None:
    ratios = {name: contrast(front, back) for name, front, back in texts(look)}
    assert len(ratios) > 50
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < AA} == {}


@pytest.mark.parametrize("colours", [XTERM, VGA], ids=["xterm", "vga"])
@pytest.mark.parametrize("look", [DARK_16, LIGHT_16], ids=lambda look: look.theme.name)
def test_text_in_sixteen_colours_has_the_contrast_of_aa_on_usual_palettes(look: Look, colours: tuple[Rgb, ...]) -> None:
    paper, ink = (colours[0], (255, 255, 255)) if look.theme.dark else ((255, 255, 255), colours[0])
    ratios = {}
    for tone, words in look.tones.items():
        style = Style.parse(words)
        front, back = (
            default if colour is None else colours[colour.number or 0]
            for colour, default in ((style.color, ink), (style.bgcolor, paper))
        )
        ratios[tone] = round(contrast(front, back), 2)
    assert {tone: ratio for tone, ratio in ratios.items() if ratio < AA} == {}


@pytest.mark.parametrize("look", [*LOOKS.values(), PLAIN], ids=lambda look: look.theme.name)
def test_only_what_waits_for_a_person_has_the_colour_of_attention(look: Look) -> None:
    attention = {"attention", "alert"}
    colours = {
        tone: {c.name for c in (style.color, style.bgcolor) if c is not None}
        for tone, style in ((tone, Style.parse(words)) for tone, words in look.tones.items())
    }
    papers = {look.theme.background, "black"}  # an alert is written in the colour of the paper
    own = (colours["attention"] | colours["alert"]) - papers
    assert [tone for tone, used in colours.items() if tone not in attention and used & own] == []


def test_the_16_colours_are_the_terminals_own() -> None:
    for look in (DARK_16, LIGHT_16):
        assert look.theme.ansi
        styles = [Style.parse(words) for words in look.tones.values()]
        named = [colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None]
        assert {colour.type.name for colour in named} == {"STANDARD"}


def test_every_mark_has_a_tone_that_every_look_knows() -> None:
    tones = {tone for _, tone in MARKS.values()} - {""}
    assert tones
    assert [(look.theme.name, tone) for look in LOOKS.values() for tone in tones - set(look.tones)] == []
