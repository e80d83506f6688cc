"""History: what late and repeated facts do, which is nothing, and what a first fact must be."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.history.evolve import _AFTER, evolve
from fleet.core.history.replace import replace as quick_replace
from fleet.core.plans.limits import Policy
from fleet.core.state.state import RunState, Trouble
from tests.fleet.core.pretend import subtask, subtask_of
from tests.fleet.core.story import Story, failure, plan_of

Late = Callable[[int], f.Fact]
REPORT = f.Report(status="done", summary="did it")


def started(number: int) -> f.Fact:
    return f.WorkerStarted(at=50, subtask="a", number=number)


def committed(number: int) -> f.Fact:
    return f.AttemptCommitted(at=50, subtask="a", number=number, commit="late", paths=("late",), report=REPORT)


def verified(number: int) -> f.Fact:
    return f.AttemptVerified(at=50, subtask="a", number=number, checks=())


def failed(number: int) -> f.Fact:
    return f.AttemptFailed(at=50, subtask="a", number=number, failure=failure("crash"), commit="late")


LATE: tuple[Late, ...] = (started, committed, verified, failed)


def unchanged(state: RunState, fact: f.Fact) -> bool:
    """Nothing but the time of the last word."""
    after = evolve(state, fact)
    return replace(after, last_at=0.0) == replace(state, last_at=0.0)


@pytest.mark.parametrize("late", LATE)
class TestLateWords:
    def test_of_an_attempt_that_failed_change_nothing(self, late: Late) -> None:
        story = Story(Policy(max_retries=0), plan_of("a"))
        story.attempt_fails("a", "transient")
        assert unchanged(story.state, late(1))

    def test_of_an_earlier_attempt_do_not_reach_the_next_one(self, late: Late) -> None:
        story = Story(plan=plan_of("a"))
        story.attempt_fails("a", "transient")
        story.time_passes_to_the_next_wake()
        assert story.current("a").number == 2
        assert unchanged(story.state, late(1))

    def test_of_an_attempt_that_was_cancelled_change_nothing(self, late: Late) -> None:
        story = Story(plan=plan_of("a", "b"))
        story.work_is_done("b")
        story.happens(f.CancelRequested(at=0, by="ada"))
        assert not story.state.ended
        assert unchanged(story.state, late(1))

    def test_of_an_attempt_that_landed_change_nothing(self, late: Late) -> None:
        story = Story(plan=plan_of("a", "b"))
        story.landed("a")
        assert unchanged(story.state, late(1))


def test_the_cost_of_a_call_is_counted_however_late_it_is_reported() -> None:
    story = Story(Policy(max_retries=0), plan_of("a"))
    story.attempt_fails("a", "transient")
    usage = Usage(input=1)
    late = f.ModelCalled(
        at=1, role="worker", model="m", usage=usage, dollars=0.5, seconds=1, subtask="a", attempt=1, turn=3
    )
    after = evolve(story.state, late)
    assert after.spent.dollars == 0.5
    assert subtask_of(after, "a").attempts[0].spend.dollars == 0.5


def test_a_run_begins_with_its_beginning() -> None:
    with pytest.raises(ValueError, match="must be run_started, not paused"):
        evolve(None, f.Paused(at=0, by="ada"))


def test_an_unknown_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="does not match any of the expected tags"):
        f.FACT.validate_json('{"kind": "coffee_made", "at": 0}')
    with pytest.raises(ValueError, match="Extra inputs"):
        f.FACT.validate_json('{"kind": "paused", "at": 0, "by": "ada", "why": "x"}')


def test_a_state_never_changes_behind_the_back_of_who_holds_it() -> None:
    story = Story(plan=plan_of("a", "b needs a"))
    before = story.state
    kept = repr(before)
    story.landed("a")
    story.attempt_fails("b")
    assert repr(before) == kept


def test_an_engine_that_takes_over_finds_no_worker_at_work() -> None:
    story = Story(plan=plan_of("a"))
    story.happens(f.WorkerStarted(at=0, subtask="a", number=1))
    assert story.state.working() == 1
    story.happens(f.EngineStarted(at=9, epoch=2, pid=2, host="here", version="1"))
    assert story.state.working() == 0
    assert story.state.peak == 1
    assert story.status("a") == "running"


def test_time_in_which_no_engine_ran_does_not_count_even_after_a_kill() -> None:
    story = Story(plan=plan_of("a", "b"))
    story.now = 30
    story.happens(f.WarningNoted(at=30, text="the last word before the kill"))
    story.happens(f.EngineStarted(at=5000, epoch=2, pid=2, host="here", version="1"))
    assert story.state.seconds(5010) == 40


def test_a_branch_that_can_not_be_moved_is_warned_of_once() -> None:
    story = Story(plan=plan_of("a"))
    refused = f.PublishFailed(at=1, tip="t", why="it is checked out", not_before=2)
    after = evolve(evolve(story.state, refused), refused)
    assert after.warnings == ("the result branch could not be moved: it is checked out",)
    assert after.publish_failures == 2


def test_every_kind_of_fact_has_a_module_that_handles_it() -> None:
    assert set(_AFTER) == set(get_args(f.Fact))


def test_a_revision_that_moves_no_subtask_shares_what_follows_from_the_plans_order() -> None:
    story = Story(Policy(max_attempts=9), plan_of("a", "b needs a"))
    story.attempt_fails("a")
    before = story.state.subtasks
    story.planner_answers(retry=[{"id": "a", "guidance": "again"}])
    after = story.state.subtasks
    assert story.state.plan.version == 1 + story.state.versions[0].plan.version
    assert after.plan.by_bit is before.plan.by_bit
    assert after.plan.places is before.plan.places
    story.attempt_fails("a")
    story.planner_answers(retry=[{"id": "a", "worker": "docs"}], add=[subtask("c", "b")])
    assert story.state.subtasks.plan.specs[SubtaskId("a")].worker == "docs"
    assert story.state.subtasks.plan.by_bit == ("a", "b", "c")
    assert [spec.id for spec in story.state.versions[-1].changed] == ["a", "c"]


def test_a_copy_has_the_fields_of_the_original_whatever_it_is_made_of() -> None:
    story = Story(plan=plan_of("a"))
    attempt = story.current("a")
    assert vars(quick_replace(attempt, turn=3)) == vars(replace(attempt, turn=3))
    assert quick_replace(story.state, paused_by="a") == replace(story.state, paused_by="a")
    trouble = Trouble(subtask=SubtaskId("a"), attempt=1, kind="check", summary="red")
    assert quick_replace(trouble, attempt=2) == replace(trouble, attempt=2)
