"""Snapshots of every page of the terminal UI, as SVG, byte for byte; CONTRIBUTING.md says how to renew them."""

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from dashboards.terminal import main_screen, subtask_screen
from fleet.core.base.usage import Usage
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.plans.plan import Plan
from fleet.core.state import facts as f
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.terminal.pilot import app_of
from tests.fleet.core.story import Story, plan_of

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZE, WIDE, TALL = (100, 24), (160, 24), (100, 56)
PATCH = """diff --git a/greet.py b/greet.py
--- a/greet.py
+++ b/greet.py
@@ -1 +1,3 @@
-GREETING = "Hello"
+def greet(name: str) -> str:
+    # French, as the epic wants it
+    return f"Bonjour {name}"
"""
CHECKS = (
    f.CheckRun(criterion="It greets", command="pytest tests/greet", passed=True, seconds=1.2, output="2 passed"),
    f.CheckRun(
        criterion="It is typed",
        command="mypy greet.py",
        passed=False,
        exit_code=1,
        seconds=0.4,
        output="greet.py:2: no",
    ),
)


def busy_story() -> Story:
    """A run in which a page finds one of everything: landed, running, waiting, failed, tested, red, asked."""
    story = Story(Policy(workers=8, budget_dollars=5, max_attempts=2, batch=4))
    story.now = 2
    lines = ("french", "spanish", "dates needs french", "money needs french spanish", "docs needs money", "web", "cli")
    story.planner_plans(*lines)
    for id_, turn, doing in (("web", 3, "edit web/index.html"), ("cli", 5, "bash pytest tests/cli")):
        story.now += 4
        works(story, id_, turn, doing)
    story.now = 14
    story.attempt_fails("spanish", kind="transient")
    story.time_passes_to_the_next_wake()
    story.now = 22
    story.landed("french", "spanish")
    works(story, "dates", 2, "str_replace_based_edit_tool greet.py")
    story.now = 30
    commit(story, "dates")
    story.happens(
        f.AttemptFailed(
            at=31, subtask="dates", number=1, failure=f.Failure(kind="check", summary="mypy fails"), checks=CHECKS
        )
    )
    story.now = 36
    story.work_is_done("cli", "web")
    batch = story.state.landing.open_batches[0]
    red = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=2)
    story.happens(f.BatchTested(at=40, number=batch.number, tip=story.state.tip, red=True, checks=(red,)))
    story.now = 44
    works(story, "money", 1, "bash ls")
    story.planner_answers(
        assessment="dates needs a decision.",
        ask=[{"about": "dates", "question": "Which calendar?", "options": ["ISO"]}],
    )
    return story


def works(story: Story, id_: str, turn: int, doing: str) -> None:
    number = story.current(id_).number
    story.happens(f.WorkerStarted(at=story.now, subtask=id_, number=number))
    story.happens(
        f.ModelCalled(
            at=story.now,
            role="worker",
            model="claude-haiku-5-5",
            usage=Usage(input=4000, output=300),
            dollars=0.05,
            seconds=1.5,
            subtask=id_,
            attempt=number,
            turn=turn,
            doing=doing,
        )
    )


def commit(story: Story, id_: str) -> None:
    report = f.Report(status="done", summary=f"{id_} is written")
    story.happens(
        f.AttemptCommitted(
            at=story.now, subtask=id_, number=1, commit="c0ffee" * 6, paths=(f"{id_}.py",), report=report
        )
    )


def ended_story() -> Story:
    """A run that landed, with a recovery on its way."""
    story = Story(Policy(workers=4, max_attempts=2), plan_of("french", "spanish needs french", "docs"))
    story.now = 5
    works(story, "french", 3, "edit greet.py")
    works(story, "docs", 2, "edit README.md")
    story.now = 9
    story.attempt_fails("french")
    story.planner_answers(retry=[{"id": "french", "guidance": "once more"}])
    story.now = 20
    works(story, "french", 4, "bash pytest")
    story.landed("french", "docs")
    story.now = 31
    works(story, "spanish", 2, "edit greet.py")
    story.landed("spanish")
    return story


def nodes_story() -> Story:
    """One node is at work, one is drained, one is out; a subtask waits for a label."""
    offers = {name: MachineOffer(labels=("gpu",) if name == "big" else ()) for name in ("", "big", "idle", "gone")}
    plan = Plan(goal="g", subtasks=(*plan_of("a", "b", labels=("gpu",)).subtasks, *plan_of("c").subtasks))
    story = Story(Policy(machines=Machines(offers=offers)), plan)
    for node in ("big", "idle"):
        labels = offers[node].labels
        story.happens(
            f.NodeConnected(
                at=0,
                node=node,
                version="1",
                host=f"{node}.example",
                processors=4,
                memory_bytes=1,
                workers=1,
                checks=1,
                labels=labels,
                lands=True,
                skew_s=2.5,
            )
        )
    story.happens(
        f.NodeDrained(at=0, node="idle", by="ada"),
        f.NodeLost(at=0, node="gone", why="no route to host"),
        f.WorkerStarted(at=1, subtask="a", number=1, node="big"),
        f.WorkerStarted(at=1, subtask="c", number=1),
    )
    return story


def wide_story() -> Story:
    """A run of 300 subtasks, of which many are under way."""
    story = Story(Policy(workers=60), plan_of("base", *(f"part{n:03} needs base" for n in range(299))))
    story.now = 4
    story.landed("base")
    busy = [subtask.id for subtask, _ in story.state.underway()]
    for number, id_ in enumerate(busy[:50]):
        story.now += 0.5
        works(story, id_, 1 + number % 7, "bash pytest")
    story.landed(*busy[:24])
    story.work_is_done(*busy[24:31])
    story.attempt_fails(busy[31])
    return story


def approval_story() -> Story:
    return Story(Policy(workers=2, review=True, reviewing="human"), plan_of("schema", "store needs schema"))


async def look_at_subtask(pilot: Pilot[None], page: str) -> None:
    pilot.app.open_subtask("dates")  # type: ignore[attr-defined] # FleetApp
    await pilot.pause()
    await pilot.press(page)
    await pilot.app.workers.wait_for_complete()


async def look_at_planner(pilot: Pilot[None]) -> None:
    pilot.app.open_subtask("planner")  # type: ignore[attr-defined] # FleetApp
    await pilot.pause()


async def answer(pilot: Pilot[None]) -> None:
    await pilot.press("a")
    pilot.app.screen.query_one(Input).cursor_blink = False


def keys(*names: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    return lambda pilot: pilot.press(*names)


Steps = Callable[[Pilot[None]], Awaitable[None]]
PAGES: dict[str, tuple[Callable[[], Story], tuple[int, int], Steps]] = {
    "0-runs": (busy_story, SIZE, keys("0")),
    "1-overview": (busy_story, SIZE, keys("1")),
    "1-overview-ended": (ended_story, SIZE, keys("1")),
    "1-overview-many": (wide_story, SIZE, keys("1")),
    "1-overview-wide": (busy_story, WIDE, keys("1")),
    "2-agents": (busy_story, SIZE, keys("2")),
    "3-plan": (busy_story, SIZE, keys("3")),
    "3-plan-approval": (approval_story, SIZE, keys("3", "A")),
    "4-landing": (busy_story, SIZE, keys("4")),
    "5-incidents": (busy_story, SIZE, keys("5")),
    "5-incidents-story": (busy_story, SIZE, keys("5", "enter")),
    "6-events": (busy_story, SIZE, keys("6")),
    "7-cost": (busy_story, SIZE, keys("7")),
    "8-nodes": (nodes_story, SIZE, keys("8")),
    "answer": (busy_story, SIZE, answer),
    "help": (busy_story, TALL, keys("question_mark")),
    "light": (busy_story, SIZE, keys("t")),
    "planner": (busy_story, SIZE, look_at_planner),
    "subtask-1-story": (busy_story, SIZE, lambda pilot: look_at_subtask(pilot, "1")),
    "subtask-2-conversation": (busy_story, SIZE, lambda pilot: look_at_subtask(pilot, "2")),
    "subtask-3-diff": (busy_story, SIZE, lambda pilot: look_at_subtask(pilot, "3")),
    "subtask-4-checks": (busy_story, SIZE, lambda pilot: look_at_subtask(pilot, "4")),
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_looks_as_in_its_snapshot(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    story, size, steps = PAGES[name]
    write_conversation(tmp_path)
    app = app_of(MemoryFeed(story().facts, folder=tmp_path, patch=PATCH))
    async with app.run_test(size=size) as pilot:
        await steps(pilot)
        await pilot.pause()
        got = app.export_screenshot(simplify=True)
    expected, actual = SNAPSHOTS / f"{name}.svg", tmp_path / f"{name}.svg"
    actual.write_text(got, encoding="utf-8")
    if request.config.getoption("--renew-snapshots"):
        expected.write_text(got, encoding="utf-8")
    assert expected.is_file(), f"{expected} is missing; --renew-snapshots writes it"
    is_same = got == expected.read_text(encoding="utf-8")
    assert is_same, f"{actual} differs from {expected}; if the change is wanted, --renew-snapshots replaces it"


def test_every_page_has_a_snapshot() -> None:
    runs = (main_screen.RUNS, *main_screen.PAGES)
    pages = {*(f"{number}-" for number in runs), *(f"subtask-{number}-" for number in subtask_screen.TITLES)}
    assert {page for page in pages if not any(name.startswith(page) for name in PAGES)} == set()


def test_every_snapshot_shows_a_page() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.svg")} == set(PAGES)


def write_conversation(folder: Path) -> None:
    messages: Sequence[dict[str, object]] = (
        {"event": "answer", "turn": 1, "content": [{"type": "text", "text": "I add the greeting and run its tests."}]},
        {
            "event": "answer",
            "turn": 2,
            "content": [{"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "pytest tests/greet"}}],
        },
    )
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    (folder / "dates.1.jsonl").write_text(lines, encoding="utf-8")
