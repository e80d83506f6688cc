"""How runs end: landed, partial, cancelled, over budget; and how they continue."""

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.decide import next_wake
from fleet.core.policy.effects import Publish, TestBatch
from tests.fleet.core.story import Story, failure, plan_of


def test_dollars_that_are_spent_begin_no_more_attempts_and_end_the_run() -> None:
    story = Story(Policy(workers=2, budget_dollars=0.05), plan_of("a", "b", "c"))
    story.model_is_called("a", 0.06)
    story.landed("a")
    assert story.statuses() == {"a": "merged", "b": "running", "c": "ready"}
    assert not story.state.ended
    story.landed("b")
    assert (story.state.ending, story.state.ending_why) == ("budget", "the budget of $0.05 is used up")
    assert story.status("c") == "ready"


def test_minutes_that_are_over_end_the_run_and_time_alone_wakes_it() -> None:
    story = Story(Policy(workers=1, budget_minutes=2), plan_of("a", "b"))
    assert next_wake(story.state, story.now) == 96
    story.time_passes_to_the_next_wake()
    assert (story.state.low, story.state.ended) == ("80% of the budget of 2 minutes is used", False)
    story.time_passes_to_the_next_wake()
    story.landed("a")
    assert (story.state.ending, story.status("b")) == ("budget", "ready")


def test_a_budget_spent_by_the_last_subtask_does_not_make_the_run_unfinished() -> None:
    story = Story(Policy(budget_dollars=0.05), plan_of("a"))
    story.model_is_called("a", 0.06)
    story.landed("a")
    assert story.state.ending == "landed"


def test_a_call_without_a_price_does_not_count_as_free() -> None:
    story = Story(Policy(budget_dollars=0.05), plan_of("a"))
    story.model_is_called("a", None)
    assert story.state.spent.dollars is None
    assert story.state.spent.unpriced == 1


def test_a_raised_budget_lets_an_ended_run_continue() -> None:
    story = Story(Policy(workers=1, budget_dollars=0.05), plan_of("a", "b"))
    story.model_is_called("a", 0.06)
    story.landed("a")
    limits = f.LimitsChanged(at=0, by="ada", budget_dollars=1)
    engine = f.EngineStarted(at=0, epoch=2, pid=2, host="here", version="1")
    story.happens(f.RunReopened(at=0, by="ada"), engine, limits)
    assert story.status("b") == "running"


def test_a_question_no_one_answers_ends_the_run_as_partial_after_the_rest_is_done() -> None:
    story = Story(Policy(answer_wait_s=60), plan_of("a", "b", failure_action="ask"))
    story.attempt_fails("a")
    story.landed("b")
    assert not story.state.ended
    story.time_passes(59)
    assert not story.state.ended
    story.time_passes_to_the_next_wake()
    assert (story.state.ending, story.state.ending_why) == ("partial", "no one answered q1")


def test_an_answer_after_the_end_is_read_when_the_run_continues() -> None:
    story = Story(Policy(answer_wait_s=60))
    story.planner_answers(add=plan_of("a", failure_action="ask").subtasks)
    story.attempt_fails("a")
    story.time_passes_to_the_next_wake()
    story.happens(f.RunReopened(at=story.now, by="ada"))
    story.human_answers("q1", "use sqlite")
    assert story.state.planning.reading.answers == ("q1",)


def test_a_cancelled_run_stops_what_runs_and_ends() -> None:
    story = Story(plan=plan_of("a", "b needs a"))
    story.happens(f.CancelRequested(at=0, by="ada"))
    assert (story.state.ending, story.effects()) == ("cancelled", ())
    assert story.of("a").current is None


def test_a_batch_on_its_way_may_still_arrive_and_be_shown_when_a_run_is_cancelled() -> None:
    story = Story(Policy(slots=1), plan_of("a", "b", "c"))
    story.work_is_done("a", "b")
    story.happens(f.CancelRequested(at=0, by="ada"))
    assert story.effects() == (TestBatch(1),)
    assert not story.state.ended
    story.batch_lands()
    assert story.effects() == (Publish(Sha("tip-1")),)
    story.is_published()
    assert story.state.ending == "cancelled"
    assert story.state.commits == 1
    assert [subtask.id for subtask, _ in story.state.underway()] == []


def test_a_red_batch_after_a_cancellation_is_not_taken_apart() -> None:
    story = Story(plan=plan_of("first", "a", "b"))
    story.work_is_done("first", "a", "b")
    story.batch_lands()
    story.is_published()
    story.happens(f.CancelRequested(at=0, by="ada"))
    ejected = tuple(f.Ejected(subtask=name, attempt=1, failure=failure("integration")) for name in ("a", "b"))
    story.happens(f.BatchTested(at=0, number=2, tip=story.state.tip, ejected=ejected, red=True))
    assert story.state.ending == "cancelled"


def test_a_cancelled_run_that_continues_does_its_work_again() -> None:
    story = Story(plan=plan_of("a"))
    story.happens(f.CancelRequested(at=0, by="ada"))
    story.happens(f.RunReopened(at=0, by="ada"))
    assert story.current("a").number == 2


@pytest.mark.parametrize("tries", [3])
def test_a_result_branch_that_can_not_be_moved_does_not_keep_the_run_waiting(tries: int) -> None:
    story = Story(plan=plan_of("a"))
    story.work_is_done("a")
    story.batch_lands()
    for _ in range(tries):
        assert not story.state.ended
        assert story.effects() == (Publish(Sha("tip-1")),)
        story.happens(f.PublishFailed(at=story.now, tip="tip-1", why="it is checked out", not_before=story.now + 5))
        assert story.effects() == ()
        story.time_passes(5)
    endings = [story.state.ending]
    assert "does not include all landed work: it is checked out. Fix this, then `fleet resume" in story.state.ending_why
    assert story.state.warnings == ("the result branch could not be moved: it is checked out",)
    story.happens(f.RunReopened(at=story.now, by="ada"))
    assert story.effects() == (Publish(Sha("tip-1")),)
    story.is_published()
    assert [*endings, story.state.ending] == ["partial", "landed"], "the branch would not have shown it"


def test_what_the_planner_dropped_before_anyone_tried_it_was_not_wanted() -> None:
    story = Story(Policy(workers=1))
    story.planner_plans("a", "b")
    story.attempt_fails("a", "transient")
    story.time_passes(0)
    story.happens(f.Paused(at=0, by="ada"))
    assert story.status("b") == "running"
    story.happens(f.Unpaused(at=0, by="ada"))
    story.landed("b")
    story.time_passes(200)
    story.landed("a")
    story.planner_answers(finished=True, synthesis="s")
    assert story.state.ending == "landed"


def test_what_was_tried_and_dropped_makes_the_end_partial() -> None:
    story = Story()
    story.planner_plans("a", "b")
    story.attempt_fails("a")
    story.planner_answers(drop=[{"id": "a", "why": "not worth it"}])
    story.landed("b")
    story.planner_answers(finished=True, synthesis="half of it")
    assert (story.state.ending, story.state.ending_why) == ("partial", "half of it")


def test_a_planner_that_plans_nothing_twice_has_failed() -> None:
    story = Story()
    story.planner_answers()
    story.planner_answers()
    assert story.state.ending == "failed"
    assert story.state.planning.calls == 2


def test_a_planner_that_does_not_finish_is_not_asked_for_ever() -> None:
    story = Story()
    story.planner_plans("a")
    story.landed("a")
    story.planner_answers()
    story.planner_answers()
    assert story.state.ending == "landed"
    assert "did not finish" in story.state.ending_why


def test_calls_of_the_planner_have_a_limit() -> None:
    story = Story(Policy(max_planner_calls=1))
    story.planner_plans("a")
    story.landed("a")
    assert (story.state.ending, story.state.ending_why) == (
        "partial",
        "the planner was called 1 times (planner.max_calls)",
    )


def test_an_ended_run_wants_nothing_and_waits_for_nothing() -> None:
    story = Story(plan=plan_of("a"))
    story.landed("a")
    assert story.state.ended
    assert story.effects() == ()
    assert next_wake(story.state, story.now) is None


def test_a_run_that_landed_on_a_gate_that_never_passed_says_so_at_its_end() -> None:
    story = Story(Policy(check_base=True, allow_red_base=True), plan_of("a"))
    red = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=2)
    story.happens(f.BaseChecked(at=0, base="base", checks=(red,)))
    story.landed("a")
    assert story.state.ending == "landed"
    assert story.state.ending_why == (
        "everything in the plan is done. The gate never passed, neither on the base nor on any landed commit: make test"
    )


def test_a_gate_that_passed_once_is_not_said_to_be_red() -> None:
    story = Story(Policy(check_base=True, allow_red_base=True), plan_of("a"))
    red = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=2)
    story.happens(f.BaseChecked(at=0, base="base", checks=(red,)))
    story.work_is_done("a")
    [probe] = story.state.landing.open_batches
    member = probe.members[0].model_copy(update={"commit": "landed-a"})
    green = red.model_copy(update={"passed": True})
    story.happens(f.BatchTested(at=0, number=probe.number, tip="landed-a", landed=(member,), checks=(green,)))
    story.is_published()
    assert story.state.ending == "landed"
    assert "never" not in story.state.ending_why
