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
from dashboards.terminal.main_screen import MainScreen
from dashboards.terminal.subtask_screen import SubtaskScreen
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.errors import FleetError
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.hostile import hostile_story, problems
from tests.dashboards.stories import busy_story, ended_story
from tests.dashboards.terminal.pilot import PATCH, app_of, rows, screen, story
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def feed() -> MemoryFeed:
    return MemoryFeed(story().facts)


SIZES = [(80, 24), (120, 40), (200, 60), (40, 12)]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_every_page_shows_at_every_size(feed: MemoryFeed, size: tuple[int, int]) -> None:
    app = app_of(feed)
    async with app.run_test(size=size) as pilot:
        for number, word in enumerate(("run", "AGENTS", "state", "subtask", "TESTING", "reco", "landed schema")):
            await pilot.press(str(number))
            assert word in screen(app), f"page {number}:\n{screen(app)}"
            assert max(map(len, rows(app))) <= size[0]


async def test_the_filter_narrows_and_goes(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "slash", *"merg", "enter")
        assert "schema" in screen(app)
        assert "cli" not in screen(app)
        await pilot.press("escape")
        assert "cli" in screen(app)
        assert not app.screen.query_one("#filter", Input).has_focus


async def test_keys_typed_into_the_filter_do_nothing_else(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("slash", *"qCPy2")
        assert app.is_running
        assert feed.requests == []
        main = app.screen
        assert isinstance(main, MainScreen)
        assert main.number == 1


async def test_the_cursor_stays_on_its_row_when_rows_come_and_go() -> None:
    run = story(plan=plan_of("a", "b", "c", "docs", "api", "schema"))
    feed = MemoryFeed(run.facts)
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("2", "g")
        listing = app.screen.query_one(Listing)
        while listing.key != "s:c":
            await pilot.press("j")
        run.work_is_done("a")
        run.batch_lands()
        run.batch_lands()
        feed.recorded = list(run.facts)
        await pilot.pause(0.3)
        assert listing.key == "s:c"


async def test_a_cursor_that_was_not_moved_goes_to_what_needs_a_person() -> None:
    run = Story(Policy(workers=8, max_attempts=1), plan_of("a", "b"))
    feed = MemoryFeed(list(run.facts))
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        assert app.screen.query_one(Listing).key == "s:a"
        run.attempt_fails("b")
        feed.recorded = run.facts
        await pilot.pause(0.3)
        assert app.screen.query_one(Listing).key == "q:q1"


async def test_an_event_leads_to_its_subtask(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("6", "enter")
        assert isinstance(app.screen, SubtaskScreen)


async def test_the_mouse_chooses_pages_and_rows(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        at = rows(app)[4].index("Plan")
        await pilot.click(offset=Offset(at, 4))
        await pilot.pause()
        assert "[Plan" in rows(app)[4]
        await pilot.click(offset=Offset(5, 8))
        key = app.screen.query_one(Listing).key
        await pilot.click(offset=Offset(5, 8))
        await pilot.pause()
        assert isinstance(app.screen, SubtaskScreen)
        assert f"s:{app.screen.subtask}" == key


async def test_a_subtask_shows_its_story_conversation_diff_and_checks(feed: MemoryFeed, tmp_path: Path) -> None:
    feed.folder, feed.patch = tmp_path, PATCH
    entry = {"event": "answer", "content": [{"type": "text", "text": "I look at [bold]it\x1b[31m"}]}
    (tmp_path / "api.1.jsonl").write_text(json.dumps(entry) + "\n")
    app = app_of(feed)
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
        assert "No checks have run yet." in screen(app)
        assert problems(rows(app)) == []
        await pilot.press("escape")
        assert isinstance(app.screen, MainScreen)


async def test_a_replay_plays_and_takes_no_requests(feed: MemoryFeed) -> None:
    feed.recorded = [fact.model_copy(update={"at": float(second)}) for second, fact in enumerate(feed.recorded)]
    app = app_of(feed, speed=10)
    async with app.run_test(size=(120, 30)) as pilot:
        assert "REPLAY" in rows(app)[0]
        await pilot.press("P", "C", "W")
        assert feed.requests == []
        await pilot.press("space", "full_stop", "less_than_sign")
        assert "paused" in rows(app)[0]


async def test_all_runs_are_there_to_be_switched_to(feed: MemoryFeed) -> None:
    other = MemoryFeed(Story(plan=plan_of("x")).facts, run="other")
    app = app_of(feed, other)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("0")
        await pilot.pause(1.2)
        await pilot.press("down", "enter")
        assert app.watched.feed.run == "other"


async def test_an_incident_opens_as_its_story_and_r_is_still_about_its_subtask(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("5", "enter")
        for wanted in ("Incident 1  docs  check", "red, it says", "fleet asked a human (q1"):
            assert wanted in screen(app), screen(app)
        await pilot.press("escape", "r")
        assert "Retry docs" in screen(app)


async def test_the_header_names_another_run_that_needs_a_person(feed: MemoryFeed) -> None:
    quiet = MemoryFeed(Story(plan=plan_of("x")).facts, run="quiet")
    stuck = MemoryFeed(story().facts, run="stuck")
    app = app_of(feed, quiet, stuck)
    async with app.run_test(size=(120, 30)) as pilot:
        await wait_for_header(app, pilot, "stuck needs you  → 0")
        assert "NEEDS YOU 1: q1 docs" in rows(app)[3], "what this run needs comes first"
        stopped = MemoryFeed(Story(plan=plan_of("x")).facts, run="stopped", alive=False)
        feeds = app.library.feeds  # type: ignore[attr-defined] # a shelf
        app.library.feeds = (*feeds, stopped)  # type: ignore[attr-defined]
        await wait_for_header(app, pilot, "2 other runs need you  → 0")


async def test_a_run_that_can_not_be_read_does_not_stop_the_header(feed: MemoryFeed) -> None:
    class Damaged(MemoryFeed):
        def facts(self, after: int, limit: int) -> Sequence[tuple[int, f.Fact]]:
            raise FleetError(f"{after}, {limit}: no journal")

    app = app_of(feed, Damaged([], run="damaged"), MemoryFeed(story().facts, run="stuck"))
    async with app.run_test(size=(80, 30)) as pilot:
        await wait_for_header(app, pilot, "stuck needs you  → 0")


async def wait_for_header(app: FleetApp, pilot: Pilot[None], wanted: str) -> None:
    """The other runs are read a little at each look, and the clock of these tests does not move."""
    for _ in range(100):
        app._looked_at = 0.0
        await pilot.pause(0.15)
        if rows(app)[3].rstrip().endswith(wanted):
            return
    raise AssertionError(rows(app)[3])


async def test_light_dark_help_and_leaving(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 50)) as pilot:
        dark = app.export_screenshot()
        await pilot.press("t")
        await pilot.pause()
        assert app.export_screenshot() != dark
        await pilot.press("question_mark")
        assert "retry the marked subtasks" in screen(app)
        await pilot.press("escape", "q")
    assert not app.is_running
    assert feed.requests == []


async def test_without_colours_the_same_text_is_shown(feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # Textual reads it, too
    app = app_of(feed, colours="none")
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3")
        filters = app.get_line_filters()
        for strip in app.screen._compositor.render_strips():
            for segment in strip.apply_filter(filters[-1], app.screen.background_colors[1]) if filters else strip:
                assert segment.style is None or segment.style.color is None or segment.style.color.is_default
        assert "✔ merged" in screen(app)
        assert "✘" in screen(app) or "?" in screen(app)


async def test_hostile_text_is_shown_as_text() -> None:
    app = app_of(MemoryFeed([fact for _, fact in hostile_story()]))
    async with app.run_test(size=(200, 60)) as pilot:
        for number in "1234560":
            await pilot.press(number)
            assert problems(rows(app)) == []
        await pilot.press("3", "enter")
        for number in "1234":
            await pilot.press(number)
            assert problems(rows(app)) == []
        assert re.search(r"\[bold\]x\[/nope\]", screen(app) + app.screen.query_one(Listing).key)


async def test_in_sixteen_colours_the_terminal_chooses_them(feed: MemoryFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = app_of(feed, colours="16")
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        used = {
            colour.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None
        }
        assert "● running" in screen(app)
    assert {"bright_cyan", "bright_green"} <= used
    assert not any(name.startswith("#") for name in used)


async def test_on_a_wide_screen_the_cursor_ends_at_the_divider() -> None:
    app = app_of(MemoryFeed(busy_story().facts))
    async with app.run_test(size=(160, 30)) as pilot:
        for _ in range(3):
            await pilot.press("down")
        strip = next(s for s in app.screen._compositor.render_strips() if "▌" in s.text and "│" in s.text)
    divider = strip.text.index("│")
    colours = [segment.style.bgcolor if segment.style else None for segment in strip for _ in segment.text]
    left, right = set(colours[2 : divider - 1]), set(colours[divider + 1 :])
    assert len(left) == 1
    assert not left & right


async def test_the_command_palette_opens_pages_and_subtasks(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        commands = {command.title: command.callback for command in app.get_system_commands(app.screen)}
        commands["Subtask: api"]()
        await pilot.pause()
        assert isinstance(app.screen, SubtaskScreen)
        commands["Page: Cost"]()
        await pilot.pause()
        assert isinstance(app.screen, MainScreen)
        assert "7 [Cost]" in screen(app)


async def test_y_copies_what_is_under_the_cursor() -> None:
    app = app_of(MemoryFeed(ended_story().facts, alive=False))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("y")
        assert app.clipboard == "fleet merge r"
        app.open_subtask("french")
        await pilot.pause()
        await pilot.press("y")
        assert app.clipboard == ended_story().of("french").landed


# ---- back ------------------------------------------------------------------------------------------------------------


async def test_backspace_leads_back_through_pages_and_runs(feed: MemoryFeed) -> None:
    other = MemoryFeed(story().facts, run="other")
    app = app_of(feed, other)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("backspace")
        assert [note.message for note in app._notifications] == ["no previous page"]
        await pilot.press("3", "5", "5", "0", "G", "enter")
        assert app.watched.feed.run == "other"
        await pilot.press("3", "enter")
        assert isinstance(app.screen, SubtaskScreen)
        await pilot.press("backspace")
        assert isinstance(app.screen, MainScreen)
        seen = []
        for _ in range(6):
            seen.append((app.watched.feed.run, app.screen.number))
            await pilot.press("backspace")
        assert seen == [("other", 3), ("other", 1), ("r", 0), ("r", 5), ("r", 3), ("r", 1)]


async def test_backspace_in_the_filter_deletes_a_letter(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "slash", *"doc", "backspace")
        assert isinstance(app.screen, MainScreen)
        assert (app.screen.number, app.screen.needle) == (3, "do")


async def test_the_order_of_agents_is_reversed_by_a_key_or_a_second_click() -> None:
    app = app_of(MemoryFeed(busy_story().facts))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("2", "o", "o")
        listing, screen_ = app.screen.query_one(Listing), app.screen
        assert isinstance(screen_, MainScreen)
        order = [key for key in listing.keys if key.startswith("s:")]
        assert order == ["s:cli", "s:money", "s:web"]
        assert "subtask↓" in screen(app)
        await pilot.press("O")
        assert [key for key in listing.keys if key.startswith("s:")] == order[::-1]
        assert "subtask↑" in screen(app)
        x = rows(app)[5].index("subtask↑")
        await pilot.click(Listing, offset=(x, 0))
        assert [key for key in listing.keys if key.startswith("s:")] == order
        await pilot.click(Listing, offset=(x, 0))
        assert [key for key in listing.keys if key.startswith("s:")] == order[::-1]
