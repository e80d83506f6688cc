"""What views say over time and of very many things; tests/corpus has what they say of a run as it is."""

import json

from dashboards.text.plan_review import plan_lines
from dashboards.text.tables import MOST_NODES, status_lines
from fleet.core.plans.limits import Policy
from fleet.core.state import facts as f
<<<<<<< HEAD
from fleet.core.state.status import Status
from fleet.core.views.base_view import dump_view
from fleet.core.views.planner_view import PlannerState, SubtaskEntry, planner_state
from fleet.core.views.run_view import AgentsView, run_word, status_view
from fleet.core.views.subtask_view import subtask_view
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
=======
from fleet.core.views.planner_view import planner_state
from fleet.core.views.incident_view import EVIDENCE, excerpt
from fleet.core.views.run_view import run_word, status_view
from tests.fleet.core.story import Story, plan_of
>>>>>>> 7dc999e (core: let the corpus prove what views say of a run)


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


def test_evidence_is_cut_to_its_end_at_a_line() -> None:
    assert excerpt("  short\n") == "short"
    long = "".join(f"line {number}\n" for number in range(1000))
    cut = excerpt(long)
    assert len(cut) <= EVIDENCE + 2
    assert cut.startswith("…\nline ")
    assert cut.endswith("line 999")
    assert len(excerpt("x" * 10**6)) == EVIDENCE + 2


def test_a_status_lists_the_first_of_very_many_nodes() -> None:
    story = Story(plan=plan_of("a"))
    node = f.NodeConnected(at=0, node="", version="1", host="h", processors=4, memory_bytes=8, workers=4, checks=2)
    story.happens(*(node.model_copy(update={"node": f"n{number:02}"}) for number in range(MOST_NODES + 3)))
    lines = status_lines(status_view(story.state, 0.0, alive=True))
    assert sum("at work" in line for line in lines) == MOST_NODES
    assert any(line.strip() == "and 3 more: fleet status r --json" for line in lines)


def test_a_plan_says_which_machine_a_subtask_needs() -> None:
    lines = plan_lines(plan_of("x", labels=("gpu", "big")), ())
    assert any("on a machine with gpu, big" in line for line in lines)
