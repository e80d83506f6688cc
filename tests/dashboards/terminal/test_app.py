"""The terminal UI under a pilot: pages, keys, filter, drill down, and requests that land in the inbox."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.widgets import Input

from dashboards.terminal.app import FleetApp
from dashboards.terminal.listing import Listing
from dashboards.terminal.main import Main
from dashboards.terminal.subtask import SubtaskView
from fleet.core import facts as f
from fleet.core.policy import Policy
from fleet.ports import FleetError
from tests.core.story import Story, plan_of
from tests.dashboards.feeds import Told
from tests.dashboards.hostile import hostile_story, problems
from tests.dashboards.terminal.pilot import app_of, rows, screen, story

PATCH = """diff --git a/api.py b/api.py
--- a/api.py
+++ b/api.py
@@ -1 +1,2 @@
-x = 1
+def run() -> None:
+    return "yes"  # now
"""


@pytest.fixture
def told() -> Told:
    return Told(story().facts)


SIZES = [(80, 24), (120, 40), (200, 60), (40, 12)]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_every_page_shows_at_every_size(told: Told, size: tuple[int, int]) -> None:
    app = app_of(told)
    async with app.run_test(size=size) as pilot:
        for number, word in enumerate(("run", "AGENTS", "state", "subtask", "TESTED NOW", "reco", "landed schema")):
            await pilot.press(str(number))
            assert word in screen(app), f"page {number}:\n{screen(app)}"
            assert max(map(len, rows(app))) <= size[0]


async def test_the_header_answers_at_a_glance(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 30)):
        top = "\n".join(rows(app)[:4])
        for word in (
            "● running",
            "the epic",
            "landed",
            "1/5",
            "agents 0/8",
            "recovered 0% (0 of 1)",
            "NEEDS YOU 1: q1 docs",
        ):
            assert word in top, top


async def test_the_filter_narrows_and_goes(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "slash", *"merg", "enter")
        assert "schema" in screen(app)
        assert "cli" not in screen(app)
        await pilot.press("escape")
        assert "cli" in screen(app)
        assert not app.screen.query_one("#filter", Input).has_focus


async def test_keys_typed_into_the_filter_do_nothing_else(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("slash", *"qCPy2")
        assert app.is_running
        assert told.asked == []
        main = app.screen
        assert isinstance(main, Main)
        assert main.number == 1


async def test_the_cursor_stays_on_its_row_when_rows_come_and_go() -> None:
    told_ = story(plan=plan_of("a", "b", "c", "docs", "api", "schema"))
    told = Told(told_.facts)
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("2", "g")
        listing = app.screen.query_one(Listing)
        while listing.key != "s:c":
            await pilot.press("j")
        told_.work_is_done("a")
        told_.batch_lands()
        told_.batch_lands()
        told.facts = list(told_.facts)
        await pilot.pause(0.3)
        assert listing.key == "s:c"


async def test_a_cursor_that_nobody_moved_goes_to_what_needs_somebody() -> None:
    told_ = Story(Policy(workers=8, max_attempts=1), plan_of("a", "b"))
    told = Told(list(told_.facts))
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        assert app.screen.query_one(Listing).key == "s:a"
        told_.attempt_fails("b")
        told.facts = told_.facts
        await pilot.pause(0.3)
        assert app.screen.query_one(Listing).key == "q:q1"


async def test_an_event_leads_to_its_subtask(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("6", "enter")
        assert isinstance(app.screen, SubtaskView)


async def test_the_mouse_chooses_pages_and_rows(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        at = rows(app)[4].index("Plan")
        await pilot.click(offset=Offset(at, 4))
        await pilot.pause()
        assert "[Plan" in rows(app)[4]
        await pilot.click(offset=Offset(5, 8))
        key = app.screen.query_one(Listing).key
        await pilot.click(offset=Offset(5, 8))
        await pilot.pause()
        assert isinstance(app.screen, SubtaskView)
        assert f"s:{app.screen.subtask}" == key


async def test_a_subtask_shows_its_story_conversation_diff_and_checks(told: Told, tmp_path: Path) -> None:
    told.folder, told.patch = tmp_path, PATCH
    entry = {"event": "answer", "content": [{"type": "text", "text": "I look at [bold]it\x1b[31m"}]}
    (tmp_path / "api.1.jsonl").write_text(json.dumps(entry) + "\n")
    app = app_of(told)
    async with app.run_test(size=(120, 40)) as pilot:
        app.open_subtask("api")
        await pilot.pause()
        assert "did api" in screen(app)
        await pilot.press("2")
        assert "I look at [bold]it" in screen(app)
        with (tmp_path / "api.1.jsonl").open("a") as file:
            file.write(json.dumps({"event": "answer", "content": "more of it"}) + "\n")
        await pilot.pause(1.3)
        assert "more of it" in screen(app), "it is followed"
        await pilot.press("3")
        await pilot.pause(0.2)
        assert 'return "yes"  # now' in screen(app)
        await pilot.press("4")
        assert "no check has run yet" in screen(app)
        assert problems(rows(app)) == []
        await pilot.press("escape")
        assert isinstance(app.screen, Main)


async def test_a_replay_plays_and_takes_no_requests(told: Told) -> None:
    told.facts = [fact.model_copy(update={"at": float(second)}) for second, fact in enumerate(told.facts)]
    app = app_of(told, speed=10)
    async with app.run_test(size=(120, 30)) as pilot:
        assert "REPLAY" in rows(app)[0]
        await pilot.press("P", "C", "W")
        assert told.asked == []
        await pilot.press("space", "full_stop", "less_than_sign")
        assert "paused" in rows(app)[0]


async def test_all_runs_are_there_to_be_switched_to(told: Told) -> None:
    other = Told(Story(plan=plan_of("x")).facts, run="other")
    app = app_of(told, other)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("0")
        await pilot.pause(1.2)
        await pilot.press("down", "enter")
        assert app.watched.feed.run == "other"


async def test_an_incident_opens_as_its_story_and_r_is_still_about_its_subtask(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("5", "enter")
        for said in ("Incident 1  docs  check", "red, it says", "a human was asked (q1"):
            assert said in screen(app), screen(app)
        await pilot.press("escape", "r")
        assert "Retry docs" in screen(app)


async def test_the_header_names_another_run_that_needs_somebody(told: Told) -> None:
    quiet = Told(Story(plan=plan_of("x")).facts, run="quiet")
    stuck = Told(story().facts, run="stuck")
    app = app_of(told, quiet, stuck)
    async with app.run_test(size=(120, 30)) as pilot:
        await looked_around(app, pilot, "stuck needs you  → 0")
        assert "NEEDS YOU 1: q1 docs" in rows(app)[3], "what this run needs comes first"
        stopped = Told(Story(plan=plan_of("x")).facts, run="stopped", alive=False)
        told_of = app.library.feeds  # type: ignore[attr-defined] # a shelf
        app.library.feeds = (*told_of, stopped)  # type: ignore[attr-defined]
        await looked_around(app, pilot, "2 other runs need you  → 0")


async def test_a_run_that_can_not_be_read_holds_the_header_up_for_nobody(told: Told) -> None:
    class Damaged(Told):
        def read(self, after: int, limit: int) -> Sequence[tuple[int, f.Fact]]:
            raise FleetError(f"{after}, {limit}: no journal")

    app = app_of(told, Damaged([], run="damaged"), Told(story().facts, run="stuck"))
    async with app.run_test(size=(80, 30)) as pilot:
        await looked_around(app, pilot, "stuck needs you  → 0")


async def looked_around(app: FleetApp, pilot: Pilot[None], wanted: str) -> None:
    """The other runs are read a little at each look, and the clock of these tests stands still."""
    for _ in range(100):
        app._looked = 0.0
        await pilot.pause(0.15)
        if rows(app)[3].rstrip().endswith(wanted):
            return
    raise AssertionError(rows(app)[3])


async def test_light_dark_help_and_leaving(told: Told) -> None:
    app = app_of(told)
    async with app.run_test(size=(120, 50)) as pilot:
        dark = app.export_screenshot()
        await pilot.press("t")
        await pilot.pause()
        assert app.export_screenshot() != dark
        await pilot.press("question_mark")
        assert "with your guidance" in screen(app)
        await pilot.press("escape", "q")
    assert not app.is_running
    assert told.asked == []


async def test_without_colours_the_same_is_said(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3")
        filters = app.get_line_filters()
        for strip in app.screen._compositor.render_strips():
            for segment in strip.apply_filter(filters[-1], app.screen.background_colors[1]) if filters else strip:
                assert segment.style is None or segment.style.color is None or segment.style.color.is_default
        assert "✔ merged" in screen(app)
        assert "✘" in screen(app) or "?" in screen(app)


async def test_hostile_text_is_shown_as_text() -> None:
    app = app_of(Told([fact for _, fact in hostile_story()]))
    async with app.run_test(size=(200, 60)) as pilot:
        for number in "1234560":
            await pilot.press(number)
            assert problems(rows(app)) == []
        await pilot.press("3", "enter")
        for number in "1234":
            await pilot.press(number)
            assert problems(rows(app)) == []
        assert re.search(r"\[bold\]x\[/nope\]", screen(app) + app.screen.query_one(Listing).key)
