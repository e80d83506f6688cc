"""Facts in words: a line for what matters, nothing for what is noise, and never a hostile character."""

from datetime import datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.text.event_text import TEXTS, event_lines, event_text
from dashboards.text.plan_review import plan_lines
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.state.state import RunState
from fleet.read.run import just_after
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


def test_the_table_has_every_kind_of_fact() -> None:
    assert set(TEXTS) == set(get_args(f.Fact))


def event_texts() -> list[tuple[str, str | None]]:
    state: RunState | None = None
    lines: list[tuple[str, str | None]] = []
    for fact in every_fact():
        state = evolve(state, fact)
        lines.append((fact.kind, event_text(just_after(state), fact)))
    return lines


def test_every_kind_of_fact_has_a_line_or_is_noise() -> None:
    kinds = {kind for kind, _ in event_texts()}
    spoken = {kind for kind, line in event_texts() if line is not None}
    assert kinds == {fact.model_fields["kind"].default for fact in get_args(f.Fact)}
    assert kinds - spoken <= SILENT


def test_a_line_of_a_hostile_run_is_as_harmless_as_any_other() -> None:
    lines = [
        line for state, fact in hostile_story() for line in (event_text(just_after(state), fact) or "").split("\n")
    ]
    assert problems(lines) == []


def test_hostile_text_makes_no_line_of_its_own() -> None:
    """Else a worker could write what looks like the fleet's own words."""
    counted = [(kind, (line or "").count("\n")) for kind, line in event_texts()]
    assert [
        (fact.kind, (event_text(just_after(state), fact) or "").count("\n")) for state, fact in hostile_story()
    ] == counted


@given(st.text(), st.sampled_from(KINDS))
def test_a_failure_in_any_words_is_one_harmless_line(text: str, kind: f.FailureKind) -> None:
    story = Story(plan=plan_of("a"))
    fact = f.AttemptFailed(at=0, subtask="a", number=1, failure=f.Failure(kind=kind, summary=text, evidence=text))
    line = event_text(just_after(evolve(story.state, fact)), fact)
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
        assert len(event_text(just_after(state), fact) or "") < 5000


def test_a_plan_for_review_is_as_harmless_as_its_plan_is_hostile() -> None:
    lines = plan_lines(hostile_run().plan)
    assert problems(lines) == []
    assert len(lines) == 1 + 2 * 6


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
    assert event_text(just_after(story.state), fact) == "the gate is red on the base: it is red in history, too"


def test_the_times_of_events_never_go_back_though_a_request_is_older_than_what_it_follows() -> None:
    story = Story(plan=plan_of("api"))
    story.time_passes(65)
    story.happens(f.Paused(at=65, by="ada"))
    state = story.state
    asked_before = f.Unpaused(at=7, by="ada")
    state = evolve(state, asked_before)
    assert list(event_lines(just_after(state), asked_before)) == ["  1:05  unpaused by ada"]
