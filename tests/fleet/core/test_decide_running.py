"""What runs when: dependencies, places, priorities, times, and when the planner is called."""

from datetime import UTC, datetime

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.run import status_view
from tests.fleet.core.story import Story, failure, plan_of


def test_a_run_without_a_plan_begins_with_the_planner() -> None:
    story = Story()
    assert (story.state.planning.open, story.state.planning.why) == (1, "start")


def test_a_run_with_a_plan_needs_no_planner_to_begin_or_to_end() -> None:
    story = Story(plan=plan_of("api", "web needs api"))
    story.landed("api")
    story.landed("web")
    assert (story.state.ending, story.state.planning.calls) == ("landed", 0)


def test_dependents_wait_until_what_they_need_has_landed() -> None:
    story = Story(plan=plan_of("schema", "api needs schema"))
    story.work_is_done("schema")
    assert story.statuses() == {"schema": "landing", "api": "waiting"}
    story.batch_lands()
    assert story.statuses() == {"schema": "merged", "api": "running"}
    assert story.current("api").base == story.state.tip == "tip-1"


def test_no_more_run_at_once_than_there_are_places_and_a_place_is_free_when_the_work_is_committed() -> None:
    story = Story(Policy(workers=2), plan_of("a", "b", "c"))
    assert list(story.statuses().values()) == ["running", "running", "ready"]
    story.work_is_done("a")
    assert story.status("c") == "running"


def test_nothing_more_starts_while_more_waits_to_land_than_is_tested_at_once() -> None:
    story = Story(Policy(workers=2, batch=3, slots=1, every_commit_within_s=0), plan_of(*"abcdefgh"))
    for id_ in "abcde":
        story.work_is_done(id_)
    assert (len(story.state.landing.queue), {story.status(id_) for id_ in "fgh"}) == (5, {"ready"})
    view = status_view(story.state, story.now, alive=True).landing
    assert (view.queued, view.testing, view.full) == (5, 1, True)
    while story.status("f") == "ready":
        assert story.state.landing.open_batches
        story.batch_lands()
    assert len(story.state.landing.queue) < 4
    assert not status_view(story.state, story.now, alive=True).landing.full


def test_where_subtasks_land_in_order_a_long_queue_holds_up_nothing() -> None:
    names = [f"s{number}" for number in range(12)]
    story = Story(Policy(workers=3, batch=1, in_order=True), plan_of(*names))
    for id_ in names[1:]:  # the first one, which all others wait for, is still at work
        story.work_is_done(id_)
    assert len(story.state.landing.queue) == 11


def test_the_longest_chain_goes_first() -> None:
    story = Story(Policy(workers=1), plan_of("leaf", "root", "middle needs root", "end needs middle"))
    assert story.statuses() == {"leaf": "ready", "root": "running", "middle": "waiting", "end": "waiting"}


def test_a_chain_as_long_as_a_plan_may_be_has_its_priority_too() -> None:
    plan = plan_of("s0", *(f"s{number} needs s{number - 1}" for number in range(1, 2000)))
    subtasks = Story(Policy(workers=1), plan).state.subtasks
    assert subtasks.ids(subtasks.all) == list(plan.ids)


def test_a_subtask_does_not_begin_before_its_time() -> None:
    later = datetime.fromtimestamp(3600, UTC)
    story = Story(plan=plan_of("api", not_before=later))
    assert story.status("api") == "waiting"
    story.time_passes(3599)
    assert story.status("api") == "waiting"
    story.time_passes_to_the_next_wake()
    assert story.now == 3600
    assert story.status("api") == "running"


def test_a_hundred_reports_at_once_cost_one_call() -> None:
    names = [f"s{number}" for number in range(100)]
    story = Story(Policy(workers=100))
    story.planner_plans(*names)
    story.happens(*(f.AttemptFailed(at=0, subtask=name, number=1, failure=failure()) for name in names))
    assert story.state.planning.calls == 2
    assert story.state.planning.reading.reports == tuple(names)


def test_what_comes_in_while_the_planner_thinks_costs_one_more_call() -> None:
    names = [f"s{number}" for number in range(100)]
    story = Story(Policy(workers=100))
    story.planner_plans(*names)
    for name in names:
        story.attempt_fails(name)
    assert (story.state.planning.calls, tuple(story.state.planning.reading.reports)) == (2, ("s0",))
    story.planner_answers()
    assert (story.state.planning.calls, tuple(story.state.planning.reading.reports)) == (3, tuple(names[1:]))


def test_good_news_waits_for_more_of_it() -> None:
    story = Story(Policy(settle_s=5))
    story.planner_plans("a", "b", "c")
    story.landed("a")
    story.time_passes(3)
    story.landed("b")
    assert story.state.planning.calls == 1
    story.time_passes_to_the_next_wake()
    assert (story.state.planning.why, tuple(story.state.planning.reading.reports)) == ("reports", ("a", "b"))


def test_when_nothing_else_runs_the_planner_concludes_at_once() -> None:
    story = Story()
    story.planner_plans("a")
    story.landed("a")
    assert (story.state.planning.open, story.state.planning.why) == (2, "conclude")
    story.planner_answers(finished=True, synthesis="all of it")
    assert (story.state.ending, story.state.ending_why) == ("landed", "all of it")


def test_a_paused_run_begins_nothing_but_lands_what_is_under_way() -> None:
    story = Story(Policy(workers=1), plan_of("a", "b"))
    story.happens(f.Paused(at=0, by="ada"))
    story.landed("a")
    story.time_passes(10_000)
    assert story.statuses() == {"a": "merged", "b": "ready"}
    assert story.effects() == ()
    assert not story.state.ended
    story.happens(f.Unpaused(at=story.now, by="ada"))
    assert story.status("b") == "running"


def test_a_paused_run_calls_no_planner() -> None:
    story = Story()
    story.planner_plans("a", "b")
    story.happens(f.Paused(at=0, by="ada"))
    story.attempt_fails("a")
    assert story.state.planning.calls == 1
    story.happens(f.Unpaused(at=0, by="ada"))
    assert story.state.planning.open == 2


def test_a_draining_run_finishes_what_runs_and_does_not_end() -> None:
    story = Story(Policy(workers=1), plan_of("a", "b"))
    story.happens(f.DrainRequested(at=0, by="ada"))
    story.landed("a")
    assert story.statuses() == {"a": "merged", "b": "ready"}
    assert story.effects() == ()
    assert not story.state.ended


def test_a_draining_run_whose_last_work_lands_has_landed() -> None:
    story = Story(Policy(workers=1), plan_of("a"))
    story.happens(f.DrainRequested(at=0, by="ada"))
    story.landed("a")
    assert story.state.ending == "landed"


def test_the_next_engine_continues_where_a_drained_one_stopped() -> None:
    story = Story(Policy(workers=1), plan_of("a", "b"))
    story.happens(f.DrainRequested(at=0, by="ada"))
    story.landed("a")
    story.happens(f.EngineStopped(at=10, why="drained"))
    story.happens(f.EngineStarted(at=1000, epoch=2, pid=2, host="here", version="1"))
    assert story.status("b") == "running"
    assert story.state.seconds(1005) == 15


def test_raised_limits_hold_from_then_on() -> None:
    story = Story(Policy(workers=1), plan_of("a", "b", "c"))
    story.happens(f.LimitsChanged(at=0, by="ada", workers=3))
    assert set(story.statuses().values()) == {"running"}
