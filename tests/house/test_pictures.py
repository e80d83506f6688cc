"""Pictures in README and docs: each is there, shown, small, and says nothing of the machine that made it."""

import re
from pathlib import Path

import pytest

from scripts.pictures import MOVING, PICTURES, REPORTS, TERMINAL
from scripts.web_pictures import SHOWN
from tests.tools import ROOT

MOST_KIB = {".svg": 160, ".png": 200, ".webp": 120}
MOST_KIB_MOVING = 240
_IMAGE = re.compile(r"!\[([^\]]+)\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def shown() -> dict[Path, str]:
    """The pictures that pages show, each with its text for readers who can't see it."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {
        (page.parent / target).resolve(): text
        for page in pages
        for text, target in _IMAGE.findall(page.read_text(encoding="utf-8"))
    }


def test_every_picture_is_shown_and_made_by_make_pictures(shown: dict[Path, str]) -> None:
    made = (
        {f"{name}.svg" for name in (*TERMINAL, MOVING)}
        | {f"{name}.png" for name in REPORTS}
        | {f"{name}.webp" for name in SHOWN}
    )
    assert {path.name for path in PICTURES.iterdir()} == made
    assert {path.name for path in shown} == made
    assert {path.parent for path in shown} == {PICTURES}
    assert all(len(text) > 10 for text in shown.values())


def test_pictures_are_small_and_fetch_nothing() -> None:
    for path in PICTURES.iterdir():
        most = MOST_KIB_MOVING if path.stem == MOVING else MOST_KIB[path.suffix]
        assert path.stat().st_size < most * 1024, path
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"https?://(?!www\.w3\.org/)|@font-face|<script|/work/|/tmp/", text), path
