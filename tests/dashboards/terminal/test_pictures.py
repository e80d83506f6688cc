"""The colours of the terminal UI, as pictures, byte for byte; its text is recorded in tests/corpus."""

from pathlib import Path

import pytest

from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.stories import busy_story
from tests.dashboards.terminal.pilot import PATCH, app_of

PICTURES = Path(__file__).parent / "pictures"


@pytest.mark.parametrize("name", ["dark", "light", "diff"])
async def test_a_page_has_the_colours_of_its_picture(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = app_of(MemoryFeed(busy_story().facts, folder=tmp_path, patch=PATCH))
    async with app.run_test(size=(100, 24)) as pilot:
        if name == "diff":
            app.open_subtask("dates")
            await pilot.press("3")
            await app.workers.wait_for_complete()
        elif name == "light":
            await pilot.press("t")
        await pilot.pause()
        got = app.export_screenshot(simplify=True)
    expected, actual = PICTURES / f"{name}.svg", tmp_path / f"{name}.svg"
    actual.write_text(got, encoding="utf-8")
    if request.config.getoption("--renew-corpus"):
        expected.write_text(got, encoding="utf-8")
    is_same = got == expected.read_text(encoding="utf-8")
    assert is_same, f"{actual} differs from {expected}; if the change is wanted, --renew-corpus replaces it"
