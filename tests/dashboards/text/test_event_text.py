"""Facts in words: a line for what matters, nothing for what is noise, and never a hostile character."""

from datetime import datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.text.event_text import event_lines, event_text
from dashboards.text.plan_review import plan_lines
from dashboards.text.summary import summary_lines
from dashboards.text.tables import status_lines
from fleet.core.history.evolve import evolve
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.views.run_view import status_view
from tests.dashboards.hostile import every_fact, hostile_run, hostile_story, problems
from tests.fleet.core.pretend import KINDS
from tests.fleet.core.story import Story, plan_of

SILENT = {
    "planner_called",
    "model_called",
    "calls_held",
    "call_lost",
    "worker_started",
    "attempt_verified",
    "plan_forecast",  # of an early version
    "batch_formed",
    "published",
}


def event_texts() -> list[tuple[str, str | None]]:
    state: RunState | None = None
    lines: list[tuple[str, str | None]] = []
    for fact in every_fact():
        state = evolve(state, fact)
        lines.append((fact.kind, event_text(state, fact)))
    return lines


@pytest.mark.parametrize(
    ("kind", "mentions"),
    [
        ("run_started", ["shop-1a2b", "main", "bbbbbbb", "simulated"]),
        ("base_checked", ["RED", "make test", "1 failed"]),
        ("evidence_read", ["estimate: medium subtasks of coder with m: $0.2000 ($0.1000 to $0.3000)", "5 landed"]),
        ("setup_ran", ["npm ci", "with the network", "FAILED: exit code 1", "EAI_AGAIN"]),
        ("service_changed", ["WAITING", "for opus", "because of a limit (HTTP 429", "no work is lost"]),
        ("attempt_unchanged", ["schema", "no file changed"]),
        ("rollback_started", ["ROLLING BACK", "deploy failed: 503"]),
        ("engine_started", ["resumed"]),
        ("engine_stopped", ["drained", "fleet resume shop-1a2b"]),
        ("warning_noted", ["the checkout is dirty"]),
        ("plan_revised", ["plan version 1", "4 added", "a first plan"]),
        ("plan_revised", ["1 revised, 1 split, 1 question asked", "QUESTION q1: Which port?", "fleet answer q1"]),
        ("plan_revised", ["2 dropped", "less is enough"]),
        ("plan_graded", ["note: app.py is contended by 8 subtasks"]),
        ("planner_failed", ["transient: overloaded"]),
        ("plan_approved", ["version 1", "ada"]),
        ("plan_rejected", ["version 1", "ada", "too wide"]),
        ("attempt_started", ["schema started", "Build schema"]),
        ("attempt_started", ["api started", "attempt 2", "retry"]),
        ("attempt_committed", ["schema", "1 file changed"]),
        ("attempt_failed", ["docs", "attempt 1", "empty: nothing changed"]),
        ("remedy_chosen", ["docs skipped"]),
        ("remedy_chosen", ["api retries in 1.0 s"]),
        ("batch_tested", ["landed schema (1 of 4)"]),
        ("batch_tested", ["read sent back: integration: red together"]),
        ("work_lost", ["DAMAGE", "1 commit can't be read", "will land again (schema)", "fleet/shop-1a2b is missing"]),
        ("publish_failed", ["fleet/shop-1a2b", "is checked out"]),
        ("question_asked", ["QUESTION q2 about read", "fleet answer q2"]),
        ("question_answered", ["q1", "ada", "8080"]),
        ("instruction_given", ["schema interrupted and told by ada", "use UTC"]),
        ("instruction_read", ["schema", "attempt 1", "1 instruction"]),
        ("node_add_requested", ["node builder added by ada"]),
        ("node_connected", ["node builder is connected: builder.example, 8 workers, 1 check at a time, gpu"]),
        ("node_drained", ["node builder drained by ada: it gets nothing new"]),
        ("node_undrained", ["node builder gets work again: asked by ada"]),
        ("node_lost", ["node builder is out: no route to host"]),
        ("review_batched", ["schema: 1 review asked for as batch msgbatch_01"]),
        ("review_unbatched", ["schema", "one by one", "takes no batches"]),
        ("review_voted", ["schema: reviewed by m", "1 finding, 1 discarded", "auth.py:7: the password is logged"]),
        ("findings_settled", ["schema: the finding at auth.py:7 was mended"]),
        ("retry_requested", ["read", "ada"]),
        ("paused", ["paused", "ada"]),
        ("unpaused", ["ada"]),
        ("drain_requested", ["draining"]),
        ("cancel_requested", ["cancelled", "ada"]),
        ("limits_changed", ["limits", "ada"]),
        ("run_ended", ["ended: cancelled", "by its operator"]),
        ("run_reopened", ["ada"]),
    ],
)
def test_an_event_mentions_what_a_person_needs(kind: str, mentions: list[str]) -> None:
    lines = [line for happened, line in event_texts() if happened == kind and line is not None]
    assert [line for line in lines if all(mention in line for mention in mentions)]


def test_every_kind_of_fact_has_a_line_or_is_noise() -> None:
    kinds = {kind for kind, _ in event_texts()}
    spoken = {kind for kind, line in event_texts() if line is not None}
    assert kinds == {fact.model_fields["kind"].default for fact in get_args(f.Fact)}
    assert kinds - spoken <= SILENT


def test_a_line_of_a_hostile_run_is_as_harmless_as_any_other() -> None:
    lines = [line for state, fact in hostile_story() for line in (event_text(state, fact) or "").split("\n")]
    assert problems(lines) == []


def test_hostile_text_makes_no_line_of_its_own() -> None:
    """Else a worker could write what looks like the fleet's own words."""
    counted = [(kind, (line or "").count("\n")) for kind, line in event_texts()]
    assert [(fact.kind, (event_text(state, fact) or "").count("\n")) for state, fact in hostile_story()] == counted


@given(st.text(), st.sampled_from(KINDS))
def test_a_failure_in_any_words_is_one_harmless_line(text: str, kind: f.FailureKind) -> None:
    story = Story(plan=plan_of("a"))
    fact = f.AttemptFailed(at=0, subtask="a", number=1, failure=f.Failure(kind=kind, summary=text, evidence=text))
    line = event_text(evolve(story.state, fact), fact)
    assert line is not None
    assert problems([line]) == []
    assert len(line) < 300


@pytest.mark.parametrize("huge", ["x" * 5_000_000, "\x1b[2J" * 1_000_000, "line\n" * 1_000_000])
def test_a_huge_text_is_a_short_line(huge: str) -> None:
    story = Story(plan=plan_of("a"))
    facts: list[Any] = [
        f.WarningNoted(at=0, text=huge),
        f.QuestionAsked(at=0, about="a", question=huge),
        f.QuestionAnswered(at=0, question="q1", answer=huge, by=huge),
        f.RunEnded(at=0, ending="partial", why=huge),
    ]
    state = story.state
    for fact in facts:
        state = evolve(state, fact)
        assert len(event_text(state, fact) or "") < 5000


def test_a_plan_for_review_is_as_harmless_as_its_plan_is_hostile() -> None:
    lines = plan_lines(hostile_run().plan)
    assert problems(lines) == []
    assert len(lines) == 1 + 2 * 6


def test_a_plan_for_review_names_what_would_be_run() -> None:
    assert plan_lines(plan_of("a", "b needs a")) == [
        "Plan: the epic  (version 0, 2 subtasks)",
        "  a                    Build a",
        "                         check: check a",
        "  b                    Build b  after a",
        "                         check: check b",
    ]


def test_a_plan_for_review_marks_areas_and_lists_warnings() -> None:
    lines = plan_lines(plan_of("a", worker="planner"), [f"note {number}" for number in range(20)])
    assert lines[1].endswith("(an area: a sub-planner breaks it down)")
    assert lines[-2:] == ["  note: note 11", "  … and 8 more"]


def test_who_approves_a_plan_sees_when_it_runs_and_what_happens_when_it_fails() -> None:
    at = datetime(2026, 3, 1, 2, tzinfo=timezone(timedelta(hours=-5), "EST"))
    plan = plan_of("deploy", failure_action="abort", not_before=at).model_copy(update={"rollback_plan": "back"})
    text = "\n".join(plan_lines(plan))
    assert "not before 2026-03-01 02:00 EST" in text
    assert "if it fails: abort" in text
    assert "rolled back by back if a step fails" in text


def test_a_gate_that_is_excused_on_the_base_is_not_called_green() -> None:
    story = Story(plan=plan_of("a"))
    check = f.CheckRun(
        criterion="gate", command="make test", passed=False, exit_code=1, excused="it is red in history, too"
    )
    fact = f.BaseChecked(at=0, base="base", checks=(check,))
    assert event_text(story.state, fact) == "the gate is red on the base; it is red in history, too"


def test_the_times_of_events_never_go_back_though_a_request_is_older_than_what_it_follows() -> None:
    story = Story(plan=plan_of("api"))
    story.time_passes(65)
    story.happens(f.Paused(at=65, by="ada"))
    state = story.state
    asked_before = f.Unpaused(at=7, by="ada")
    state = evolve(state, asked_before)
    assert list(event_lines(state, asked_before)) == ["  1:05  unpaused by ada"]


def test_what_is_set_aside_is_shown_with_the_command_that_takes_it_up_again() -> None:
    story = Story(plan=plan_of("api"))
    story.attempt_fails("api", "internal")
    (asked,) = (fact for fact in story.facts if isinstance(fact, f.QuestionAsked))
    assert (event_text(story.state, asked) or "").endswith("→  fleet retry api")
    steps = "\n".join(summary_lines(story.state, story.now))
    assert "fleet retry api --run r" in steps
    assert "fleet answer" not in steps
    lines = status_lines(status_view(story.state, story.now, alive=False))
    assert [line for line in lines if line.endswith("→  fleet retry api")]
