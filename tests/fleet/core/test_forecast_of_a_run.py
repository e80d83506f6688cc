"""A forecast in a run: recorded for each version of the plan before anything of it begins, and compared at the end."""

from fleet.core.base.usage import Usage
from fleet.core.plans.limits import Policy
from fleet.core.plans.revision import Revision
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.views.run.forecast_view import AmountView, ForecastView, forecast_view
from tests.fleet.core.policy.test_forecast import ASSUMED
from tests.fleet.core.story import Story, plan_of

PLAN = plan_of("a", "b needs a")


def knows(story: Story, **fields: object) -> None:
    story.happens(f.EvidenceRead(at=story.now, runs=0, assumed=ASSUMED).model_copy(update=fields))


def waiting(**policy: object) -> Story:
    """A run that begins nothing before a person approves its plan."""
    return Story(Policy(review=True, reviewing="human", **policy), PLAN)


def compared(state: RunState, now: float) -> ForecastView:
    view = forecast_view(state, now, alive=True)
    assert view is not None
    return view


def amount(view: ForecastView) -> AmountView:
    assert view.dollars is not None
    return view.dollars


def planner_is_called(
    story: Story, *, call: int, turn: int, dollars: float | None = 0.2, seconds: float = 20.0
) -> None:
    story.happens(
        f.ModelCalled(
            at=story.now,
            role="planner",
            model="planner",
            usage=Usage(),
            dollars=dollars,
            seconds=seconds,
            call=call,
            turn=turn,
        )
    )


def test_a_plan_is_forecast_before_anything_of_it_begins() -> None:
    story = waiting()
    assert story.state.forecast is None, "nothing is assumed in a run from before this was recorded"
    knows(story)
    [made] = story.facts_of(f.PlanForecast)
    assert (made.version, made.forecast.subtasks) == (story.state.plan.version, 2)
    assert story.state.attempts == 0
    story.happens(f.PlanApproved(at=0.0, version=1, by="ada"))
    story.landed("a")
    story.landed("b")
    assert story.facts_of(f.PlanForecast) == [made]


def test_the_gate_is_run_on_the_base_before_the_forecast() -> None:
    story = waiting(check_base=True)
    knows(story)
    assert story.state.forecast is None
    gate = f.CheckRun(criterion="the gate", command="make test", passed=True, seconds=600.0)
    story.happens(f.BaseChecked(at=0.0, base="base", checks=(gate,)))
    slow = compared(story.state, 0.0)
    quick = waiting()
    knows(quick)
    assert slow.minutes.median > compared(quick.state, 0.0).minutes.median + 10


def test_each_version_of_a_plan_that_waits_for_approval_is_forecast_again() -> None:
    story = waiting()
    knows(story)
    more = Revision(assessment="more", add=plan_of("c", "d", "e").subtasks)
    story.happens(f.PlanRevised(at=0.0, call=None, by="ada", revision=more))
    first, second = story.facts_of(f.PlanForecast)
    assert (first.forecast.subtasks, second.forecast.subtasks) == (2, 5)
    assert compared(story.state, 0.0).subtasks == 5


def test_what_the_planner_cost_until_then_is_in_the_forecast() -> None:
    story = Story()
    knows(story)
    planner_is_called(story, call=1, turn=1, dollars=3.0)
    story.planner_plans("a", "b")
    [made] = story.facts_of(f.PlanForecast)
    assert made.forecast.planner > 2.5
    assert made.forecast.dollars is not None
    assert made.forecast.dollars.median > 3.0


def test_the_end_of_a_run_says_how_far_off_its_forecast_was() -> None:
    story = waiting()
    knows(story)
    story.happens(f.PlanApproved(at=0.0, version=1, by="ada"))
    for id_ in ("a", "b"):
        story.model_is_called(id_, dollars=50.0)
        story.time_passes(60.0)
        assert amount(compared(story.state, story.now)).was is None, "it has not ended"
        story.landed(id_)
    assert story.state.ended
    view = compared(story.state, story.now)
    cost = amount(view)
    assert (cost.was, cost.within) == (100.0, False)
    assert cost.off == round(100.0 / cost.median - 1, 4)
    assert (view.minutes.was, view.minutes.within) == (2.0, True)
    assert view.minutes.off is not None
    assert view.minutes.off < 0
    assert view.added == 0


def test_subtasks_that_came_later_are_counted() -> None:
    story = waiting()
    knows(story)
    story.happens(f.PlanApproved(at=0.0, version=1, by="ada"))
    more = Revision(assessment="more", add=plan_of("c").subtasks)
    story.happens(f.PlanRevised(at=0.0, call=None, by="ada", revision=more))
    view = compared(story.state, 0.0)
    assert (view.subtasks, view.added) == (2, 1)


def test_calls_of_the_planner_are_counted_by_model_and_by_whether_they_were_the_first() -> None:
    story = Story()
    planner_is_called(story, call=1, turn=1)
    planner_is_called(story, call=1, turn=2)
    story.planner_plans("a")
    assert story.state.calls == (f.CallTally(model="planner", first=True, calls=1, seconds=40.0, dollars=0.4),)
    story.attempt_fails("a")
    planner_is_called(story, call=2, turn=1, dollars=None)
    later = next(tally for tally in story.state.calls if not tally.first)
    assert (later.calls, later.seconds, later.dollars) == (1, 20.0, None)


def test_an_attempt_is_timed_until_its_checks_have_passed_or_it_failed() -> None:
    story = Story(Policy(ladders={"coder": ("m",)}), plan_of("a"))
    begun = story.current("a")
    story.happens(f.WorkerStarted(at=story.now, subtask="a", number=begun.number))
    story.model_is_called("a")
    story.time_passes(30.0)
    story.work_is_done("a")
    story.time_passes(500.0)
    story.batch_lands()
    tallies = story.state.tallies.values()
    assert [(tally.timed, tally.seconds) for tally in tallies] == [(1, 30.0)]


def test_an_attempt_that_two_engines_worked_on_has_no_time() -> None:
    story = Story(Policy(ladders={"coder": ("m",)}), plan_of("a"))
    story.happens(f.WorkerStarted(at=story.now, subtask="a", number=1))
    story.time_passes(30.0)
    story.happens(f.EngineStarted(at=story.now, epoch=2, pid=1, host="here", version="1"))
    story.happens(f.WorkerStarted(at=story.now, subtask="a", number=1))
    story.time_passes(30.0)
    story.landed("a")
    [tally] = story.state.tallies.values()
    assert (tally.landed, tally.timed, tally.seconds) == (1, 0, 0.0)
