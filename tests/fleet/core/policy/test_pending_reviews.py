"""Reviews that were asked for, in the budget and while a run is drained."""

import pytest

from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.budget import run_budgets
from fleet.core.policy.effects import may_start
from tests.fleet.core.pretend import checks_of
from tests.fleet.core.story import Story, plan_of

VOTE = f.Vote(criterion="fine", focus="faults", vote=1, model="m")


def test_a_pending_batch_counts_in_the_budget_until_its_results_are_there() -> None:
    story = Story(Policy(budget_dollars=1.0), plan=plan_of("a"))
    asked = f.AskedVote(id="fleet-1", criterion="fine", focus="faults", vote=1, model="m")
    batched = f.ReviewBatched(
        at=0, subtask="a", number=1, asked=(asked,), cost=Cost(calls=1, tokens=9, dollars=0.75), batch="b1"
    )
    story.happens(batched)
    [budget] = run_budgets(story.state, 0)
    assert budget.used == pytest.approx(0.75)
    assert story.of("a").attempts[0].batch == batched
    story.happens(f.ReviewVoted(at=0, subtask="a", number=1, votes=(VOTE,), batch="b1"))
    [budget] = run_budgets(story.state, 0)
    assert budget.used == 0.0
    assert story.state.pending_reviews == {}


def test_a_drained_run_does_not_begin_to_wait_for_a_batch_again() -> None:
    story = Story(plan=plan_of("a"))
    report = f.Report(status="done", summary="did it")
    story.happens(f.AttemptCommitted(at=0, subtask="a", number=1, commit="c", paths=("a.py",), report=report))
    wait = checks_of("a", 1)
    story.happens(f.ReviewBatched(at=0, subtask="a", number=1, asked=(), cost=Cost(), batch="b1"))
    assert may_start(story.state, wait)
    story.happens(f.DrainRequested(at=0, by="ada"))
    assert not may_start(story.state, wait)
    story.happens(f.ReviewUnbatched(at=0, subtask="a", number=1, why="it is gone"))
    assert may_start(story.state, wait)


def test_what_a_reviewer_costs_is_not_taken_for_the_workers_model() -> None:
    story = Story(plan=plan_of("a"))
    story.model_is_called("a")
    called = story.facts[-1]
    assert isinstance(called, f.ModelCalled)
    before = story.of("a").attempts[0]
    story.happens(called.model_copy(update={"role": "reviewer", "model": "other", "doing": "submit_review"}))
    after = story.of("a").attempts[0]
    assert (after.model, after.doing, after.spend.calls) == (before.model, before.doing, 2)
    assert story.state.spend["reviewer"].calls == 1
