"""What a person does to a run on the screen: requests in its inbox; destructive ones are confirmed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dashboards.terminal.actions import ChoiceDialog
from dashboards.terminal.listing import Listing
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.stories import ended_story
from tests.dashboards.terminal.pilot import app_of, rows, screen, story
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def feed() -> MemoryFeed:
    return MemoryFeed(story().facts)


async def test_enter_on_a_question_answers_it(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        assert app.screen.query_one(Listing).key == "q:q1"
        await pilot.press("enter")
        assert "docs failed 1 time" in screen(app)
        assert "docs" in screen(app)
        await pilot.press(*"utc", "enter")
        assert [(type(r), getattr(r, "answer", "")) for r in feed.requests] == [(f.QuestionAnswered, "utc")]


async def test_a_digit_takes_an_option(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("a", "2", "enter")
        [request] = feed.requests
        assert isinstance(request, f.QuestionAnswered)
        assert request.answer == "drop it"


async def test_a_cancel_needs_a_clear_yes(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("C", "enter", "n")
        await pilot.press("C", "escape")
        assert feed.requests == []
        await pilot.press("C", "y")
        assert [type(request) for request in feed.requests] == [f.CancelRequested]


async def test_limits_are_changed_and_nonsense_is_refused(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("W", *["backspace"] * 3, *"many", "enter")
        await pilot.press("W", *["backspace"] * 3, "0", "enter")
        assert feed.requests == []
        await pilot.press("W", *["backspace"] * 3, *"40", "enter")
        await pilot.press("B", *"2.5", "enter")
        changed = [(r.workers, r.budget_dollars) for r in feed.requests if isinstance(r, f.LimitsChanged)]
        assert changed == [(40, None), (None, 2.5)]


async def test_a_run_is_paused_and_unpaused(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("P")
        feed.recorded = [*feed.recorded, f.Paused(at=50, by="ada")]
        await pilot.pause(0.3)
        assert "‖ paused" in rows(app)[0]
        await pilot.press("P")
        assert [type(request) for request in feed.requests] == [f.Paused, f.Unpaused]


async def test_retry_with_guidance_of_the_subtask_under_the_cursor(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("5", "r")
        assert "red, it says" in screen(app), "the failure is shown"
        await pilot.press(*"try tox", "enter")
        [request] = feed.requests
        assert isinstance(request, f.RetryRequested)
        assert (request.subtask, request.guidance) == ("docs", "try tox")


async def test_an_invalid_request_is_explained_and_not_sent(feed: MemoryFeed) -> None:
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "r", "A", "R")
        await pilot.pause()
        assert feed.requests == []
        assert feed.resume_count == 0
        assert len(app._notifications) == 3


async def test_an_interrupted_run_is_resumed(feed: MemoryFeed) -> None:
    feed.alive, feed.output = False, "no key"
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        assert "✘ interrupted" in rows(app)[0]
        assert "interrupted: no key" in screen(app)
        await pilot.press("R")
        assert feed.resume_count == 1


async def test_a_shell_opens_in_a_copy_of_what_was_committed(feed: MemoryFeed) -> None:
    seen: list[tuple[Sequence[str], str]] = []

    def program(command: Sequence[str], folder: Path | None) -> int:
        assert folder is not None
        seen.append((command, (folder / "commit").read_text()))
        return 0

    app = app_of(feed, program=program, shell_command=["/bin/zsh"])
    async with app.run_test(size=(120, 40)) as pilot:
        app.open_subtask("api")
        await pilot.pause()
        await pilot.press("s")
        await pilot.pause(0.3)
        assert seen == [(["/bin/zsh"], "c-api")]


def reviewed() -> Story:
    return Story(Policy(workers=2, review=True), plan_of("a", "b needs a"))


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (lambda text: text.replace("Build b.", "Build b well."), "changed"),
        (lambda text: text.replace('depends_on = ["a"]', 'depends_on = ["zzz"]').replace('"a",', '"zzz",'), "refused"),
        (lambda text: text, "same"),
        (lambda _: "no plan", "refused"),
    ],
    ids=["changed", "unknown dependency", "untouched", "not even TOML"],
)
async def test_a_plan_is_edited_and_checked_on_return(edit: object, wanted: str) -> None:
    feed = MemoryFeed(reviewed().facts)

    def program(command: Sequence[str], folder: Path | None) -> int:
        assert folder is None
        path = Path(command[-1])
        path.write_text(edit(path.read_text()))  # type: ignore[operator]
        return 0

    app = app_of(feed, program=program)
    async with app.run_test(size=(120, 40)) as pilot:
        assert "press A to approve, X to reject, E to edit" in screen(app)
        await pilot.press("E")
        await pilot.pause()
        assert ("Plan not changed" in screen(app)) == (wanted == "refused")
        assert [type(request) for request in feed.requests] == ([f.PlanRevised] if wanted == "changed" else [])


def waiting_for_ada(*lines: str) -> MemoryFeed:
    return MemoryFeed(Story(Policy(workers=2, review=True, reviewing="human"), plan_of(*lines)).facts)


async def test_a_plan_is_rejected_with_a_reason_and_not_without() -> None:
    feed = waiting_for_ada("a", "b needs a")
    app = app_of(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        assert "A approve  X reject  E edit plan" in rows(app)[-1]
        await pilot.press("X")
        assert "Reject plan version 0: what should change?" in screen(app)
        assert "check: check b" in screen(app)
        await pilot.press("enter", "escape")
        assert feed.requests == []
        await pilot.press("X", *"not b", "enter")
        [request] = feed.requests
        assert isinstance(request, f.PlanRejected)
        assert (request.version, request.reason, request.subtasks) == (0, "not b", None)


@pytest.mark.parametrize(
    ("keys", "kind", "part"),
    [
        ("Ao", f.PlanApproved, ("b",)),
        ("Ay", f.PlanApproved, None),
        ("Xono", f.PlanRejected, ("b",)),
        ("Xano", f.PlanRejected, None),
    ],
)
async def test_on_the_page_of_the_plan_a_verdict_may_be_about_the_subtask_under_the_cursor(
    keys: str, kind: type[f.PlanApproved | f.PlanRejected], part: tuple[str] | None
) -> None:
    feed = waiting_for_ada("a", "b needs a")
    app = app_of(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("3", "j")
        assert sum("? approve" in row for row in rows(app)) == 2
        await pilot.press(keys[0])
        assert "only b" in screen(app)
        await pilot.press("n")
        assert feed.requests == []
        await pilot.press(*keys, *(["enter"] if kind is f.PlanRejected else []))
        [request] = feed.requests
        assert isinstance(request, kind)
        assert request.subtasks == part


async def test_a_plan_is_approved_after_it_was_shown() -> None:
    feed = MemoryFeed(reviewed().facts)
    app = app_of(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("A")
        assert "check: check b" in screen(app)
        await pilot.press("y")
        assert [type(request) for request in feed.requests] == [f.PlanApproved]


async def test_the_result_of_an_ended_run_is_taken_after_a_yes() -> None:
    ran: list[tuple[list[str], Path | None]] = []

    def program(command: Sequence[str], folder: Path | None) -> int:
        ran.append((list(command), folder))
        return 0

    feed = MemoryFeed(ended_story().facts, alive=False)
    app = app_of(feed, program=program, fleet_command=("fleet",))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("m", "n")
        assert ran == []
        await pilot.press("m", "y")
        await pilot.pause()
    ((command, folder),) = ran
    assert command[-3:] == ["fleet", "merge", "r"]
    assert folder == Path(ended_story().state.repository)


async def test_what_has_not_landed_is_not_taken(feed: MemoryFeed) -> None:
    feed.recorded = Story(plan=plan_of("a")).facts
    app = app_of(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("m")
        assert not isinstance(app.screen, ChoiceDialog)


async def test_the_bell_rings_once_when_something_needs_a_person(feed: MemoryFeed) -> None:
    asked, feed.recorded = feed.recorded, Story(plan=plan_of("a")).facts
    app = app_of(feed)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        app._look()
        assert app.rung == 0
        app.watched = app._watch("r")
        feed.recorded = asked
        app.watched.catch_up(10)
        app._look()
        app._look()
        assert app.rung == 1


# ---- several subtasks at once ---------------------------------------------------------------------------------------


@pytest.fixture
def wide() -> MemoryFeed:
    """A run in which three subtasks failed for good, one landed and one is at work."""
    run = Story(Policy(workers=8, max_attempts=1), plan_of("schema", "api", "docs", "cli", "web"))
    run.landed("schema")
    for id_ in ("api", "docs", "cli"):
        run.attempt_fails(id_)
    return MemoryFeed(run.facts)


def marks(shown: list[str]) -> list[str]:
    """The subtasks of the plan's page that are marked."""
    return [row.partition("◆")[2].split()[2] for row in shown if "◆" in row]


async def test_marked_subtasks_are_retried_together(wide: MemoryFeed) -> None:
    app = app_of(wide)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "space", "space", "space")
        assert marks(rows(app)) == ["schema", "api", "docs"]
        await pilot.press("r")
        await pilot.pause()
        assert "Retry 2 subtasks" in screen(app), "what has landed can't be retried"
        assert [note.message.partition(":")[0] for note in app._notifications] == ["1 of 3 skipped"]
        await pilot.press(*"go", "enter")
        asked = [(r.subtask, r.guidance) for r in wide.requests if isinstance(r, f.RetryRequested)]
        assert asked == [("api", "go"), ("docs", "go")]
        await pilot.pause()
        assert marks(rows(app)) == [], "the marks are used up"


async def test_marked_subtasks_are_dropped_by_one_change_of_the_plan(wide: MemoryFeed) -> None:
    app = app_of(wide)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "slash", *"escalated", "enter", "asterisk")
        assert marks(rows(app)) == ["api", "docs", "cli"]
        await pilot.press("x", "enter")
        assert wide.requests == [], "a reason is needed"
        await pilot.press(*"old", "enter")
        [request] = wide.requests
        assert isinstance(request, f.PlanRevised)
        assert [(drop.id, drop.why) for drop in request.revision.drop] == [
            (id_, "old") for id_ in ("api", "docs", "cli")
        ]


async def test_marks_are_taken_back(wide: MemoryFeed) -> None:
    app = app_of(wide)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "asterisk")
        assert len(marks(rows(app))) == 5
        await pilot.press("g", "space")
        assert len(marks(rows(app))) == 4
        await pilot.press("asterisk", "asterisk")
        assert marks(rows(app)) == []
        await pilot.press("space", "5")
        await pilot.press("escape")
        assert app.marked == frozenset()
        assert "[Incidents" in screen(app), "the first Esc takes the marks back, no more"
        await pilot.press("3", "g", "space")
        app.switch("r")
        assert app.marked == {"schema"}, "the same run"


async def test_only_marked_subtasks_are_approved() -> None:
    feed = MemoryFeed(Story(Policy(workers=2, review=True), plan_of("one", "two", "three")).facts)
    app = app_of(feed)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "g", "space", "space", "A")
        assert "only 2 subtasks" in screen(app)
        await pilot.press("o")
        [request] = feed.requests
        assert isinstance(request, f.PlanApproved)
        assert request.subtasks == ("one", "two")


async def test_a_replay_has_no_marks(wide: MemoryFeed) -> None:
    app = app_of(wide, speed=1.0)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("3", "space", "asterisk")
        assert app.marked == frozenset()
        assert app.replay is not None
        assert app.replay.paused
