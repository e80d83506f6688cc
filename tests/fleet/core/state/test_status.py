"""How far a run is, counted one way for every view, and what its agents do."""

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.revision import Revision
from fleet.core.state.status import agent_phases, phase, progress
from tests.fleet.core.story import Story, plan_of


def with_an_area() -> Story:
    story = Story(Policy(workers=8))
    story.planner_answers(add=(plan_of("auth", worker="planner").subtasks[0], plan_of("docs").subtasks[0]))
    return story


def area_plans(story: Story, *lines: str) -> None:
    call = story.area("auth").open
    revision = Revision(assessment="its parts", add=plan_of(*lines).subtasks)
    story.happens(f.PlanRevised(at=story.now, call=call, by="planner", revision=revision, area="auth"))


def test_what_landed_counts_of_all_that_is_to_land() -> None:
    story = Story(Policy(workers=8), plan_of("a", "b", "c needs b"))
    assert str(progress(story.state)) == "0 of 3"
    story.landed("a")
    assert str(progress(story.state)) == "1 of 3"


def test_a_split_subtask_counts_as_its_parts() -> None:
    story = Story(Policy(workers=8), plan_of("a", "b"))
    story.attempt_fails("a")
    story.planner_answers(split=[{"id": "a", "why": "wide", "into": plan_of("a1", "a2", "a3").subtasks}])
    assert str(progress(story.state)) == "0 of 4"


def test_a_subtask_that_was_dropped_or_skipped_does_not_count() -> None:
    plan = plan_of("a", "b", "c")
    [a, *rest] = plan.subtasks
    skips = a.model_copy(update={"failure_action": "skip"})
    story = Story(Policy(workers=8), plan.model_copy(update={"subtasks": (skips, *rest)}))
    story.attempt_fails("a")
    story.attempt_fails("b")
    story.planner_answers(drop=[{"id": "b", "why": "not wanted"}])
    assert str(progress(story.state)) == "0 of 1"


def test_a_subtask_that_changed_no_file_is_done_although_it_has_no_commit() -> None:
    story = Story(Policy(workers=8), plan_of("a", "b"))
    report = f.Report(status="done", summary="nothing to do")
    story.happens(
        f.AttemptUnchanged(at=0, subtask="a", number=1, report=report),
        f.AttemptVerified(at=0, subtask="a", number=1, checks=()),
    )
    assert story.state.commits == 0
    assert str(progress(story.state)) == "1 of 2"


def test_an_area_counts_as_its_subtasks_before_it_begins_and_after() -> None:
    story = with_an_area()
    assert str(progress(story.state)) == "0 of 1"
    area_plans(story, "login", "logout")
    assert str(progress(story.state)) == "0 of 3"
    story.landed("login", "logout", "docs")
    assert str(progress(story.state)) == "3 of 3"


def test_an_area_that_a_worker_does_after_all_counts_as_a_subtask() -> None:
    story = with_an_area()
    failure = f.Failure(kind="other", summary="too small for a planner")
    story.happens(f.AttemptFailed(at=0, subtask="auth", number=1, failure=failure))
    story.planner_answers(retry=[{"id": "auth", "guidance": "do it yourself", "worker": "coder"}])
    assert str(progress(story.state)) == "0 of 2"


def test_an_attempt_goes_through_its_phases() -> None:
    story = Story(Policy(workers=8), plan_of("a"))
    assert phase(story.current("a")) == "starting"
    story.happens(f.WorkerStarted(at=0, subtask="a", number=1))
    assert phase(story.current("a")) == "working"
    report = f.Report(status="done", summary="did it")
    story.happens(f.AttemptCommitted(at=0, subtask="a", number=1, commit="c", paths=("a.py",), report=report))
    assert phase(story.current("a")) == "checking"
    story.happens(f.AttemptVerified(at=0, subtask="a", number=1, checks=()))
    assert phase(story.current("a")) == "landing"


def test_an_area_is_planning_for_as_long_as_its_subtasks_are_worked_on() -> None:
    story = with_an_area()
    assert sorted(agent_phases(story.state)) == ["planning", "starting"], "the area and docs"
    area_plans(story, "login", "logout needs login")
    story.happens(f.WorkerStarted(at=1, subtask="docs", number=1), f.WorkerStarted(at=1, subtask="login", number=1))
    assert sorted(agent_phases(story.state)) == ["planning", "working", "working"]


def test_the_planner_is_an_agent_while_it_is_called() -> None:
    story = Story(Policy(workers=8))
    assert list(agent_phases(story.state)) == ["planning"]
    story.planner_plans("a")
    assert list(agent_phases(story.state)) == ["starting"]
