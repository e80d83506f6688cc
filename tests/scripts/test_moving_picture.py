"""The moving picture: each element is drawn once, and shown exactly while its screenshots are."""

import io
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from scripts.moving_picture import animate

SHOTS = ("fleet\n0 of 2", "fleet\n1 of 2", "fleet\n2 of 2 <done>", "fleet\n1 of 2")


def screenshot(text: str) -> str:
    console = Console(width=20, record=True, file=io.StringIO())
    console.print(text, style="bold green", markup=False, highlight=False)
    return console.export_svg(title="t")


def visible(svg: str, at: float) -> Sequence[str]:
    """The texts of the layers that are shown at a time, in percent, as the styles say."""
    names = {"svg": "http://www.w3.org/2000/svg"}
    seen: list[str] = []
    for layer in ET.fromstring(svg).iterfind(".//svg:g/svg:g", names):  # noqa: S314 # ours
        steps = re.search(rf"@keyframes {layer.get('class')}\{{(.*?)\}}\}}", svg)
        found = re.findall(r"([\d.]+)%\{visibility:(\w+)", steps[1]) if steps else [("0", "visible")]
        states = [state for start, state in found if float(start) <= at]
        if states[-1] == "visible":
            seen += [text.text or "" for text in layer.iterfind("svg:text", names)]
    return sorted(seen)


@pytest.mark.parametrize(("at", "shot"), [(0, 0), (10, 0), (20, 1), (30, 1), (40, 2), (60, 3), (99, 3)])
def test_each_screenshot_is_shown_in_its_time(at: float, shot: int) -> None:
    svg = animate([screenshot(text) for text in SHOTS], seconds=1, last=3)
    assert visible(svg, at) == sorted(SHOTS[shot].split("\n"))


def test_what_screenshots_share_is_drawn_once() -> None:
    svg = animate([screenshot(text) for text in SHOTS], seconds=1, last=3)
    assert (svg.count(">fleet<"), svg.count(">1 of 2<")) == (1, 1)


def test_without_motion_the_last_screenshot_stays() -> None:
    svg = animate([screenshot(text) for text in SHOTS], seconds=1, last=3)
    still = dict(re.findall(r"\.(m\d+)\{visibility:(\w+)", svg))
    shown = dict(re.findall(r'<g class="(m\d+)">.*?>([^<>]*)</text>', svg))
    assert {shown[name]: state for name, state in still.items()} == {
        "0 of 2": "hidden",
        "1 of 2": "visible",
        "2 of 2 &lt;done&gt;": "hidden",
    }


def test_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not a screenshot"):
        animate(["<svg/>"], seconds=1, last=3)
