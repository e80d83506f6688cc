"""Long texts and time: finding words, folding, both sides of a diff, the bar of a replay, and the order of a table."""

import json
import re
from pathlib import Path

import pytest
from anyio import fail_after
from textual.geometry import Offset

from dashboards.terminal.app import attention_signs
from dashboards.terminal.listing import Listing
from fleet.core.facts import facts as f
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.terminal.pilot import PATCH, app_of, rows, screen, story
from tests.fleet.processes import LIMIT_S


@pytest.fixture
def feed() -> MemoryFeed:
    return MemoryFeed(story().facts)


async def test_a_replay_has_a_bar_with_marks_and_goes_from_failure_to_failure(feed: MemoryFeed) -> None:
    feed.recorded = [fact.model_copy(update={"at": float(second)}) for second, fact in enumerate(feed.recorded)]
    failed = next(at for at, fact in enumerate(feed.recorded) if isinstance(fact, f.AttemptFailed))
    app = app_of(feed, speed=1)
    async with app.run_test(size=(120, 30)) as pilot:
        replay = app.replay
        assert replay is not None
        await pilot.press("space", "right_curly_bracket")
        assert replay.position == failed
        assert "docs" in {fact.subtask for _, fact in replay.facts(0, 1000) if isinstance(fact, f.AttemptFailed)}
        bar = rows(app)[1]
        assert bar.count("●") == 1
        await pilot.press("right_curly_bracket")
        assert replay.position == replay.length, "there is no other failure"
        assert "!" in rows(app)[1]
        await pilot.press("left_curly_bracket")
        assert replay.position == failed
        await pilot.click("#header", offset=Offset(1, 1))
        assert replay.position == 0
        await pilot.click("#header", offset=Offset(60, 0))
        assert replay.position == 0, "only the bar is the time"


async def test_words_are_found_in_a_text_from_line_to_line(feed: MemoryFeed, tmp_path: Path) -> None:
    feed.folder = tmp_path
    said = "\n".join(f"line {number}{' WANTED' * (number % 25 == 20)}" for number in range(50))
    entry = {"event": "answer", "turn": 1, "content": [{"type": "text", "text": said}]}
    (tmp_path / "docs.1.jsonl").write_text(f"{json.dumps(entry)}\n" * 2, encoding="utf-8")
    app = app_of(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_subtask("docs")
        await pilot.press("2", "g", "slash", *"wanted", "enter")
        for expected in ("line 20 WANTED", "line 45 WANTED", "line 20 WANTED"):
            [found] = [row for row in rows(app) if row.strip().startswith("→")]
            assert expected in found
            await pilot.press("n")
        await pilot.press("N", "N")
        [found] = [row for row in rows(app) if row.strip().startswith("→")]
        assert "line 45 WANTED" in found
        await pilot.press("escape", "slash", *"absent", "enter")
        await pilot.pause()
        assert "no match" in "\n".join(str(each.message) for each in app._notifications)


async def test_a_conversation_is_folded_to_a_line_each(feed: MemoryFeed, tmp_path: Path) -> None:
    feed.folder = tmp_path
    content = [
        {"type": "text", "text": "I look.\nSecond line."},
        {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls -l"}},
    ]
    (tmp_path / "docs.1.jsonl").write_text(json.dumps({"event": "answer", "content": content}), encoding="utf-8")
    with (tmp_path / "docs.1.jsonl").open("a") as file:
        file.write("\n")
    app = app_of(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_subtask("docs")
        await pilot.press("2")
        assert "Second line." in screen(app)
        await pilot.press("f")
        assert "Second line." not in screen(app)
        assert "── answer  I look." in screen(app)
        assert "→ bash  command: ls -l" in screen(app)
        await pilot.press("f")
        assert "Second line." in screen(app)


async def test_a_diff_is_shown_side_by_side_where_there_is_room(feed: MemoryFeed) -> None:
    feed.patch = PATCH
    app = app_of(feed)
    async with app.run_test(size=(120, 24)) as pilot:
        app.open_subtask("api")
        await pilot.press("3")
        await pilot.pause(0.2)
        assert not [row for row in rows(app) if " │ " in row]
        await pilot.press("d")
        both = [row for row in rows(app) if " │ " in row]
        assert len(both) == 2
        assert re.search(r"1 - x = 1 +│ +1 \+ def run\(\)", both[0])
        assert re.search(r"^ +│ +2 \+     return", both[1])
        await pilot.resize_terminal(90, 24)
        with fail_after(LIMIT_S):
            while [row for row in rows(app) if " │ " in row]:
                await pilot.pause(0.05)


async def test_a_click_on_a_title_orders_the_agents(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press("2")
        head = next(index for index, row in enumerate(rows(app)) if "subtask" in row and "doing" in row)
        listing = app.screen.query_one(Listing)
        await pilot.click("#list", offset=Offset(rows(app)[head].index("turn") + 1, head - listing.region.y))
        assert "turn↓" in rows(app)[head]


def test_the_terminal_is_asked_to_notify_once() -> None:
    assert attention_signs(2, is_new=True) == "\x1b]0;(!2) fleet\x07\x1b]9;fleet needs you\x07"
    assert attention_signs(3, is_new=False) == "\x1b]0;(!3) fleet\x07"
    assert attention_signs(0, is_new=False) == "\x1b]0;fleet\x07"


@pytest.mark.parametrize("speed", [None, 1])
async def test_ctrl_c_names_only_what_it_can_do(feed: MemoryFeed, speed: float | None) -> None:
    app = app_of(feed, speed=speed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert ("Leave, drain or cancel?" in screen(app), "Leave?" in screen(app)) == (speed is None, speed is not None)
