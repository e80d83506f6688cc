"""Budgets: checked before a call, shown to the planner in time, kept for run and subtask, raised by a human."""

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.budget import refusal, run_budgets
from fleet.core.policy.planner_view import planner_state
from fleet.read.run import status_view
from fleet.read.run_view import run_word
from tests.fleet.core.story import Story, plan_of

CALL = Cost(calls=1, tokens=1000, dollars=0.02)


def why(story: Story, cost: Cost = CALL, held: Cost | None = None, subtask: str | None = None) -> str | None:
    no = refusal(story.state, story.now, cost, held or Cost(), SubtaskId(subtask) if subtask else None)
    return None if no is None else f"{no.kind}: {no.why}"


def test_a_call_that_might_cost_more_than_is_left_is_refused_before_it_is_made() -> None:
    story = Story(Policy(budget_dollars=0.05), plan_of("a"))
    assert why(story) is None
    story.model_is_called("a", 0.04)
    assert why(story) == "spent: the run's budget of $0.05 does not cover another call"
    assert why(story, Cost(calls=1, tokens=10, dollars=0.01)) is None


def test_tokens_are_a_budget_of_their_own() -> None:
    assert Usage(input=1, output=2, cache_read=4, cache_write=8).total == 15
    story = Story(Policy(budget_tokens=1000), plan_of("a"))
    assert why(story) is None
    story.model_is_called("a", None)
    assert next(run_budgets(story.state, 0)).remaining == 1000 - 11
    assert why(story) == "spent: the run's budget of 1,000 tokens does not cover another call"


def test_what_calls_under_way_may_cost_is_not_given_out_twice() -> None:
    story = Story(Policy(budget_dollars=0.05), plan_of("a"))
    no = refusal(story.state, 0, CALL, Cost(calls=2, tokens=2000, dollars=0.04), None)
    assert no is not None
    assert no.temporary
    assert refusal(story.state, 0, CALL, Cost(calls=1, tokens=1000, dollars=0.02), None) is None


def test_a_budget_in_dollars_can_not_be_kept_without_a_price() -> None:
    unknown = Cost(calls=1, tokens=1000, dollars=None)
    assert (why(Story(Policy(budget_dollars=5), plan_of("a")), unknown) or "").startswith("configuration: the price")
    assert why(Story(Policy(budget_dollars=5, budget_tokens=5000), plan_of("a")), unknown) is None
    assert why(Story(plan=plan_of("a")), unknown) is None


def test_minutes_refuse_calls_and_attempts_do_not() -> None:
    story = Story(Policy(budget_minutes=1, budget_attempts=1, workers=1), plan_of("a", "b"))
    assert why(story) is None
    story.time_passes(61)
    assert why(story) == "spent: the run's budget of 1 minutes is used up"


def test_no_more_attempts_begin_than_a_run_may_have() -> None:
    story = Story(Policy(budget_attempts=1, workers=4), plan_of("a", "b"))
    assert story.statuses() == {"a": "running", "b": "ready"}
    story.landed("a")
    assert (story.state.ending, story.state.ending_why) == ("budget", "the budget of 1 attempts is used up")


def test_what_one_subtask_used_counts_against_its_own_budget_and_past_it_a_human_is_asked() -> None:
    story = Story(Policy(subtask_dollars=0.05), plan_of("a", "b"))
    story.model_is_called("a", 0.04)
    assert why(story, subtask="a") == "budget: the subtask's budget of $0.05 does not cover another call"
    assert why(story, subtask="b") is None
    story.model_is_called("a", 0.02)
    story.attempt_fails("a", "budget")
    [question] = story.state.open_questions()
    assert "its budget of $0.05 is used up" in question.text
    story.human_answers(question.id, "continue")
    assert why(story, subtask="a") is None


def test_minutes_of_a_subtask_are_those_of_its_attempts() -> None:
    story = Story(Policy(subtask_minutes=1, workers=1), plan_of("a", "b"))
    story.time_passes(90)
    assert why(story, subtask="a") == "budget: the subtask's budget of 1 minutes is used up"
    story.landed("a")
    assert why(story, subtask="b") is None


def test_an_attempt_that_the_runs_budget_stopped_has_not_failed_and_continues_when_there_is_more() -> None:
    story = Story(Policy(budget_dollars=0.05, workers=1), plan_of("a", "b"))
    story.model_is_called("a", 0.04)
    story.happens(f.CallRefused(at=0, why="the run's budget of $0.05 does not cover another call"))
    assert run_word(story.state, 0, alive=True) == "over budget"
    story.attempt_fails("a", "spent")
    assert (story.state.ending, tuple(story.state.incidents)) == ("budget", ())
    assert (story.of("a").counted, story.of("a").retries) == (0, 0)
    engine = f.EngineStarted(at=0, epoch=2, pid=2, host="here", version="1")
    story.happens(f.RunReopened(at=0, by="ada"), engine, f.LimitsChanged(at=0, by="ada", budget_dollars=1))
    assert story.status("a") == "running"


def test_at_the_soft_limit_the_planner_is_informed_once_and_again_after_a_raise() -> None:
    story = Story(Policy(budget_dollars=1.0, budget_soft=0.5))
    story.planner_plans("a", "b")
    story.model_is_called("a", 0.4)
    assert (story.state.low, story.state.planning.open) == ("", None)
    story.model_is_called("a", 0.2)
    assert story.state.planning.why == "budget"
    budget = planner_state(story.state, 0)["budget"]
    assert budget["low"] == "50% of the budget of $1 is used: finish nearly complete work"
    story.planner_answers()
    story.model_is_called("a", 0.1)
    assert story.state.planning.open is None
    story.happens(f.LimitsChanged(at=0, by="ada", budget_dollars=10.0))
    assert "low" not in planner_state(story.state, 0)["budget"]
    story.model_is_called("a", 5.0)
    assert story.state.planning.why == "budget"


def test_a_run_with_a_given_plan_informs_no_planner() -> None:
    story = Story(Policy(budget_dollars=1.0), plan_of("a", "b"))
    story.model_is_called("a", 0.9)
    assert (bool(story.state.low), story.state.planning.open) == (True, None)


def test_a_crash_leaves_in_doubt_what_calls_under_way_might_have_cost_and_the_budget_counts_it() -> None:
    story = Story(Policy(budget_dollars=1.0), plan_of("a"))
    story.happens(f.CallsHeld(at=0, cost=Cost(calls=3, tokens=3000, dollars=0.3)))
    engine = f.EngineStarted(at=0, epoch=2, pid=2, host="here", version="1")
    story.happens(engine)
    assert story.state.doubt == Cost(calls=3, tokens=3000, dollars=0.3)
    assert next(run_budgets(story.state, 0)).remaining == pytest.approx(0.7)
    story.happens(engine)
    assert story.state.doubt.calls == 3


def test_an_engine_that_said_goodbye_leaves_only_the_calls_it_broke_off_in_doubt() -> None:
    story = Story(Policy(budget_dollars=1.0), plan_of("a"))
    story.happens(f.CallsHeld(at=0, cost=Cost(calls=3, tokens=3000, dollars=0.3)))
    story.happens(f.CallLost(at=0, role="worker", model="m", cost=CALL, subtask="a", attempt=1))
    story.happens(f.EngineStopped(at=0, why="stopped"))
    story.happens(f.EngineStarted(at=0, epoch=2, pid=2, host="here", version="1"))
    assert story.state.doubt == CALL
    assert status_view(story.state, 0, alive=True).cost_in_doubt == CALL
