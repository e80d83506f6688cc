"""Views: the planner's shared state is what the protocol prints, the status has the keys that scripts read."""

import json
from typing import get_args

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.planner_view import PlannerState, SubtaskEntry, planner_state
from fleet.core.state.status import Status
from fleet.read.base_view import dump_view
from fleet.read.run import status_view
from fleet.read.run_view import AgentsView, run_word
from fleet.read.subtask_view import subtask_view
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import Story, failure, plan_of

PLANNER_KEYS = {
    "run",
    "goal",
    "plan_version",
    "tip",
    "budget",
    "subtasks",
    "reports_since_last_call",
    "questions",
}
SUBTASK_KEYS = {
    "id",
    "title",
    "status",
    "attempts",
    "depends_on",
    "worker",
    "result",
    "recommendations",
    "failures",
}
PLANNER_STATUSES = {
    "waiting",
    "ready",
    "running",
    "verifying",
    "landing",
    "merged",
    "failed",
    "blocked",
    "dropped",
    "escalated",
}
STATUS_KEYS = {
    "run",
    "state",
    "goal",
    "plan_version",
    "subtasks",
    "agents",
    "attempts",
    "commits",
    "incidents",
    "tokens",
    "cost_dollars",
    "seconds",
    "result_branch",
    "tip",
}
REPORT = f.Report(
    status="done", summary="did it", recommendations=("test more",), needs=("a key",), discovered=("a bug",)
)


@pytest.fixture
def story() -> Story:
    """A subtask in every standing there is."""
    story = Story(Policy(workers=20, max_attempts=2, budget_dollars=10, budget_minutes=60))
    names = "merged", "landing", "queued", "verifying", "running", "failed", "blocked", "escalated", "dropped", "split"
    story.planner_plans(*names, "waiting needs running", "last needs merged")
    story.model_is_called("merged", 2.5)
    story.landed("merged")
    story.happens(f.Paused(at=0, by="ada"))
    story.work_is_done("landing")
    story.happens(f.AttemptCommitted(at=0, subtask="verifying", number=1, commit="c", paths=("x",), report=REPORT))
    story.attempt_fails("escalated", "transient")
    story.attempt_fails("dropped")
    story.attempt_fails("split")
    story.happens(f.Unpaused(at=0, by="ada"))
    story.planner_answers(
        drop=[{"id": "dropped", "why": "w"}],
        split=[{"id": "split", "why": "w", "into": [subtask("part")]}],
        ask=[{"about": "escalated", "question": "which?", "options": ["a", "b"]}],
    )
    story.happens(f.Paused(at=0, by="ada"))
    story.attempt_fails("failed")
    story.attempt_fails("blocked", "ambiguous", f.Report(status="blocked", summary="?"))
    story.attempt_fails("last", "transient")
    story.time_passes(200)
    return story


def by_id(view: PlannerState) -> dict[str, SubtaskEntry]:
    return {subtask["id"]: subtask for subtask in view["subtasks"]}


def test_the_planners_state_has_the_keys_of_the_protocol(story: Story) -> None:
    view = planner_state(story.state, story.now)
    assert set(view) == PLANNER_KEYS
    assert all(set(subtask) >= SUBTASK_KEYS for subtask in view["subtasks"])
    assert all(
        set(entry) == {"attempt", "class", "strategy", "evidence"} for s in view["subtasks"] for entry in s["failures"]
    )
    assert all(set(question) >= {"id", "answer"} for question in view["questions"])
    assert set(view["budget"]) == {"dollars_left", "minutes_left"}
    assert json.loads(json.dumps(view)) == view


def test_the_planner_sees_the_statuses_of_the_protocol_and_no_other(story: Story) -> None:
    statuses = {id_: subtask["status"] for id_, subtask in by_id(planner_state(story.state, story.now)).items()}
    own = {id_: status for id_, status in statuses.items() if id_ not in {"queued", "split", "part", "last"}}
    assert own == {id_: id_ for id_ in own}
    assert set(statuses.values()) == PLANNER_STATUSES
    assert (statuses["queued"], statuses["split"], statuses["last"]) == ("running", "dropped", "ready")
    assert set(get_args(Status)) == PLANNER_STATUSES | {"split"}


def test_the_planner_reads_what_was_reported_and_what_failed(story: Story) -> None:
    view = by_id(planner_state(story.state, story.now))
    assert (view["blocked"]["result"], view["verifying"]["result"]) == ("?", "")
    assert view["split"]["result"] == "split into part"
    assert view["failed"]["failures"] == [
        {"attempt": 1, "class": "check", "strategy": "first", "evidence": "red\nred, it says"}
    ]


def test_the_planner_reads_what_is_left_of_the_budget(story: Story) -> None:
    assert planner_state(story.state, story.now)["budget"] == {"dollars_left": 7.5, "minutes_left": 56.7}
    free = Story(plan=plan_of("a"))
    assert planner_state(free.state, 0)["budget"] == {"dollars_left": None, "minutes_left": None}


def test_the_planner_reads_who_reported_since_it_was_last_asked() -> None:
    story = Story()
    story.planner_plans("a", "b")
    story.attempt_fails("a")
    story.attempt_fails("b")
    assert planner_state(story.state, 0)["reports_since_last_call"] == ["a"]
    story.planner_answers()
    assert planner_state(story.state, 0)["reports_since_last_call"] == ["b"]


def test_long_evidence_and_a_long_history_stay_bounded() -> None:
    story = Story(Policy(max_retries=50), plan_of("a"))
    for number in range(20):
        evidence = f.Failure(kind="transient", summary="s", evidence="x" * 100_000)
        story.happens(f.AttemptFailed(at=story.now, subtask="a", number=number + 1, failure=evidence))
        story.time_passes_to_the_next_wake()
    (view,) = planner_state(story.state, story.now)["subtasks"]
    assert (view["attempts"], len(view["failures"])) == (21, 4)
    assert len(json.dumps(view)) < 20_000


def test_a_status_has_at_least_the_keys_that_scripts_read(story: Story) -> None:
    view = dump_view(status_view(story.state, story.now, alive=True))
    assert set(view) >= STATUS_KEYS
    assert set(view["agents"]) >= {"running", "peak"}
    assert set(view["incidents"]) >= {"opened", "open", "closed", "recovered", "rate", "by_class", "by_strategy"}
    assert set(view["tokens"]) == {"planner", "worker"}
    assert set(view["tokens"]["worker"]) == {"calls", "input", "output", "cache_read", "cache_write"}
    assert json.loads(json.dumps(view)) == view


def test_the_counts_of_a_status_add_up(story: Story) -> None:
    view = dump_view(status_view(story.state, story.now, alive=True))
    assert sum(view["subtasks"].values()) == len(story.state.subtasks) == 13
    incidents = view["incidents"]
    rows = incidents["by_class"].values()
    assert incidents["opened"] == sum(row["opened"] for row in rows) == 6
    assert incidents["recovered"] + incidents["unrecovered"] == incidents["closed"] == 2
    assert (incidents["open"], incidents["rate"]) == (4, 0)
    assert (view["commits"], view["cost_dollars"]) == (1, 2.5)


def test_a_rate_comes_with_its_denominator() -> None:
    counts = dump_view(status_view(Story(plan=plan_of("a")).state, 0, alive=True))["incidents"]
    assert (counts["rate"], counts["closed"], counts["by_class"], counts["by_strategy"]) == (None, 0, {}, {})


def test_an_unknown_price_makes_the_cost_unknown_and_not_nothing(story: Story) -> None:
    story.model_is_called("running", None)
    assert status_view(story.state, story.now, alive=True).cost_dollars is None


def test_a_result_branch_is_named_when_there_is_something_on_it() -> None:
    story = Story(plan=plan_of("a", "b"))
    assert status_view(story.state, 0, alive=True).result_branch is None
    story.landed("a")
    assert status_view(story.state, 0, alive=True).result_branch == "fleet/r"


def test_no_one_works_in_a_run_without_an_engine() -> None:
    story = Story(plan=plan_of("a"))
    story.happens(f.WorkerStarted(at=0, subtask="a", number=1))
    assert status_view(story.state, 0, alive=True).agents == AgentsView(running=1, peak=1, limit=16)
    interrupted = status_view(story.state, 0, alive=False)
    assert (interrupted.agents.running, interrupted.state) == (0, "interrupted")


def test_one_word_says_how_a_run_is() -> None:
    story = Story(Policy(review=True, budget_dollars=0.05))

    def word() -> str:
        return run_word(story.state, story.now, alive=True)

    seen = [word()]
    story.planner_plans("a")
    seen.append(word())
    story.happens(f.PlanApproved(at=0, version=1, by="ada"))
    seen.append(word())
    story.happens(f.Paused(at=0, by="ada"))
    seen.append(word())
    story.happens(f.Unpaused(at=0, by="ada"))
    story.model_is_called("a", 0.06)
    seen.append(word())
    story.happens(f.DrainRequested(at=0, by="ada"))
    seen.append(word())
    story.happens(f.CancelRequested(at=0, by="ada"))
    seen.append(word())
    assert seen == ["planning", "awaiting approval", "running", "paused", "over budget", "draining", "cancelled"]


def test_a_subtask_shows_all_its_attempts_with_checks_and_failures(story: Story) -> None:
    check = f.CheckRun(criterion="c", command="make test", passed=False, exit_code=2, output="1 failed")
    story.happens(f.AttemptFailed(at=9, subtask="running", number=1, failure=failure(), report=REPORT, checks=(check,)))
    spec = story.state.spec(SubtaskId("running"))
    view = dump_view(subtask_view(story.state, spec, story.now))
    assert json.loads(json.dumps(view)) == view
    (attempt,) = view["attempts"]
    assert attempt["checks"][0]["command"] == "make test"
    assert attempt["failure"]["kind"] == "check"
    assert attempt["report"]["summary"] == "did it"
    assert [trouble["class"] for trouble in view["incidents"][0]["troubles"]] == ["check"]
