"""Estimates by comparable landed subtasks, or none; and what is left of a run, by its own landed subtasks."""

import pytest

from dashboards.text.plan_review import UNKNOWN, comparable_lines, review_lines
from dashboards.text.tables import status_lines
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.facts.facts import Spread, SubtaskEstimate
from fleet.core.plans.limits import ENOUGH, Policy
from fleet.core.plans.plan import PLANNER
from fleet.read.costs import (
    LandedCost,
    estimate_view,
    estimates_of,
    landed_subtasks,
    plan_estimates,
    remaining_view,
    run_estimates,
)
from fleet.read.plan_views import plan_review
from fleet.read.report_data import report_data
from fleet.read.run import status_view
from tests.fleet.core.story import Story, plan_of

PAST = SubtaskEstimate(
    worker="coder",
    size="medium",
    model="m",
    landed=7,
    dollars=Spread(median=0.3, low=0.1, high=1.2),
    seconds=Spread(median=250, low=58, high=720),
)
TEXT = (
    "medium subtasks of coder with m: $0.3000 ($0.1000 to $1.20), 4 min 10 s (58 s to 12 min 00 s) each "
    "(median and range of 7 landed subtasks)"
)


def landed(*dollars: float | None, model: str | None = "m", seconds: float | None = 60.0) -> list[LandedCost]:
    return [LandedCost("coder", "medium", model, each, seconds) for each in dollars]


def happen(story: Story, number: int, dollars: float = 0.10) -> None:
    """One more subtask lands after ten seconds."""
    id_ = f"part{number}"
    story.time_passes(10)
    story.model_is_called(id_, dollars)
    story.landed(id_)


@pytest.fixture
def story() -> Story:
    """Five of ten have landed after 50 seconds, for 50 cents; the planner cost a dollar."""
    story = Story(plan=plan_of(*(f"part{number}" for number in range(10))))
    story.happens(f.ModelCalled(at=0, role="planner", model="m", usage=Usage(), dollars=1.0, seconds=1))
    for number in range(5):
        happen(story, number)
    return story


# ---- estimates ------------------------------------------------------------------------------------------------------


def test_enough_comparable_subtasks_make_a_median_and_a_range() -> None:
    [estimate] = estimates_of(landed(0.1, 0.2, 0.3, 0.4, 9.0))
    assert (estimate.worker, estimate.size, estimate.model, estimate.landed) == ("coder", "medium", "m", 5)
    assert estimate.dollars == Spread(median=0.3, low=0.1, high=9.0)
    assert estimate.seconds == Spread(median=60, low=60, high=60)


def test_fewer_make_none_and_other_models_are_not_comparable() -> None:
    assert estimates_of(landed(*[0.1] * (ENOUGH - 1))) == ()
    assert estimates_of(landed(*[0.1] * 4) + landed(0.1, model="other")) == ()


def test_a_price_or_a_time_that_is_not_known_is_not_guessed() -> None:
    [program] = estimates_of(landed(*[None] * 5, model=None))
    assert (program.dollars, program.seconds) == (None, Spread(median=60, low=60, high=60))
    [resumed] = estimates_of(landed(*[0.1] * 5, seconds=None))
    assert resumed.seconds is None
    assert "cost and time unknown" in comparable_lines([resumed.model_copy(update={"dollars": None})])[0]


def test_each_kind_of_subtask_of_a_plan_has_its_estimate_or_the_reason_why_not() -> None:
    subtasks = [*plan_of("a", "b").subtasks, *plan_of("c", worker="writer").subtasks]
    area = plan_of("area", worker=PLANNER).subtasks
    rows = plan_estimates([*subtasks, *area], [PAST])
    assert rows == (PAST, SubtaskEstimate(worker="writer", size="medium"))
    assert comparable_lines(rows) == [f"Estimate: {TEXT}", f"          medium subtasks of writer: {UNKNOWN}"]
    assert comparable_lines(rows[1:]) == comparable_lines([]) == [f"Estimate: {UNKNOWN}"]


def test_a_model_that_the_plan_names_is_compared_with_itself() -> None:
    [own] = plan_estimates(plan_of("a", model="own").subtasks, [PAST])
    assert (own.model, own.landed) == (None, 0)
    assert plan_estimates(plan_of("a", model="m").subtasks, [PAST]) == (PAST,)


def test_without_a_plan_all_that_landed_is_shown() -> None:
    assert estimate_view(None, (PAST,)).estimates == (PAST,)
    assert estimate_view(plan_of("c", worker="writer"), (PAST,)).estimates[0].dollars is None


# ---- a run ----------------------------------------------------------------------------------------------------------


def test_a_landed_subtask_cost_all_of_its_attempts_until_the_checks_of_the_last_had_passed() -> None:
    story = Story(Policy(ladders={"coder": ("m",)}), plan_of("a", failure_action="retry"))
    story.happens(f.WorkerStarted(at=story.now, subtask="a", number=1))
    story.model_is_called("a", dollars=0.5)
    story.time_passes(10)
    story.attempt_fails("a")
    assert list(landed_subtasks(story.state)) == []
    story.time_passes_to_the_next_wake()
    story.happens(f.WorkerStarted(at=story.now, subtask="a", number=2))
    story.model_is_called("a", dollars=0.25)
    story.time_passes(30)
    story.work_is_done("a")
    story.time_passes(500)
    story.batch_lands()
    [one] = landed_subtasks(story.state)
    assert (one.worker, one.size, one.dollars, one.seconds) == ("coder", "medium", 0.75, 40.0)
    assert one.model == story.of("a").attempts[-1].model


def test_a_run_that_was_interrupted_has_costs_and_no_times(story: Story) -> None:
    story.happens(f.EngineStarted(at=story.now, epoch=2, pid=1, host="here", version="1"))
    assert {(one.dollars, one.seconds) for one in landed_subtasks(story.state)} == {(0.10, None)}


def test_a_run_is_estimated_by_past_runs_until_enough_of_its_own_subtasks_landed(story: Story) -> None:
    fresh = Story(plan=plan_of("a"))
    assert run_estimates(fresh.state) == (SubtaskEstimate(worker="coder", size="medium"),)
    fresh.happens(f.EvidenceRead(at=0.0, runs=2, estimates=(PAST,)))
    assert run_estimates(fresh.state) == (PAST,)
    [own] = run_estimates(story.state)
    assert (own.landed, own.dollars) == (5, Spread(median=0.1, low=0.1, high=0.1))


def test_nothing_is_estimated_of_a_run_that_ended_or_replays_history(story: Story) -> None:
    for number in range(5, 10):
        happen(story, number)
    assert story.state.ended
    assert run_estimates(story.state) == ()


def test_status_review_and_report_show_the_estimate_or_why_there_is_none() -> None:
    story = Story(Policy(review=True), plan_of("a"))
    for said in (UNKNOWN, TEXT):
        assert f"  estimate   {said}" in status_lines(status_view(story.state, story.now, alive=True))
        assert f"Estimate: {said}" in review_lines(plan_review(story.state))
        data = report_data(story.facts, story.now, alive=True)
        assert data is not None
        assert list(data.estimates) == list(run_estimates(story.state)) != []
        story.happens(f.EvidenceRead(at=0.0, runs=2, estimates=(PAST,)))


# ---- what is left ---------------------------------------------------------------------------------------------------


def test_the_rest_goes_as_what_has_landed(story: Story) -> None:
    left = remaining_view(story.state, story.now, alive=True)
    assert left is not None
    assert (left.landed, left.subtasks) == (5, 10)
    assert left.seconds == pytest.approx(50)
    assert left.dollars == pytest.approx(2.0)  # the planner is paid once


def test_an_unknown_price_makes_the_cost_unknown(story: Story) -> None:
    story.model_is_called("part5", None)
    left = remaining_view(story.state, story.now, alive=True)
    assert left is not None
    assert left.dollars is None


def test_little_says_nothing() -> None:
    story = Story(plan=plan_of(*(f"part{number}" for number in range(10))))
    for number in range(ENOUGH - 1):
        happen(story, number)
    assert remaining_view(story.state, story.now, alive=True) is None
    happen(story, ENOUGH - 1)
    assert remaining_view(story.state, story.now, alive=True) is not None


def test_nothing_is_left_of_a_run_that_ended_or_has_no_process(story: Story) -> None:
    assert remaining_view(story.state, story.now, alive=False) is None
    story.happens(f.CancelRequested(at=story.now, by="ada"))
    assert remaining_view(story.state, story.now, alive=True) is None


def test_a_status_says_what_is_left(story: Story) -> None:
    text = "\n".join(status_lines(status_view(story.state, story.now, alive=True)))
    assert "cost       $1.50, about $2.00 in total" in text
    assert "time       50 s, about 50 s left" in text
    assert "left" not in "\n".join(status_lines(status_view(story.state, story.now, alive=False)))
