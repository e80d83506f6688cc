"""What people are notified of in a run: each reason has a name that stays, and is gone once it was dealt with."""

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.features.notify.causes import NotificationCause, causes
from fleet.read.run import RunSnapshot
from tests.fleet.core.story import Story, plan_of


def by_name(story: Story, *, alive: bool = True, at: float | None = None) -> dict[str, NotificationCause]:
    now = story.now if at is None else at
    return {each.key: each for each in causes(RunSnapshot(story.state, now, alive), incident_s=60.0)}


def test_a_question_is_a_cause_until_it_is_answered() -> None:
    story = Story(Policy(max_attempts=1), plan_of("api"))
    story.attempt_fails("api")
    [question] = [each for each in by_name(story).values() if each.event == "question"]
    assert (question.key, question.title) == ("question:q1", "question q1 about api")
    assert question.command == f"fleet answer q1 TEXT --run {story.state.run}"
    story.human_answers("q1")
    assert "question:q1" not in by_name(story)


def test_a_plan_that_waits_is_a_cause_of_its_version() -> None:
    story = Story(Policy(review=True, reviewing="human"), plan_of("api", "docs"))
    [review] = by_name(story).values()
    assert (review.event, review.text) == ("review", "api, docs")
    assert review.key == f"review:{story.state.plan.version}"
    story.happens(f.PlanApproved(at=0, version=story.state.plan.version, by="ada"))
    assert by_name(story) == {}


def test_an_incident_is_one_once_it_is_old() -> None:
    story = Story(plan=plan_of("api"))
    story.attempt_fails("api")
    assert by_name(story) == {}
    [incident] = by_name(story, at=story.now + 61).values()
    assert (incident.event, incident.key) == ("incident", "incident:1")


def test_a_budget_is_told_once_and_again_only_after_it_was_raised() -> None:
    story = Story(plan=plan_of("api"))
    story.happens(f.BudgetRanLow(at=0, why="80% of $5 is used"))
    [first] = by_name(story)
    assert first.startswith("budget:")
    story.happens(f.LimitsChanged(at=0, by="ada", budget_dollars=9))
    assert by_name(story) == {}
    story.happens(f.BudgetRanLow(at=0, why="80% of $9 is used"))
    [second] = by_name(story)
    assert first != second


def test_a_run_whose_process_is_gone_has_died_unless_it_stopped() -> None:
    story = Story(plan=plan_of("api"))
    assert by_name(story) == {}
    [death] = by_name(story, alive=False).values()
    assert (death.event, death.key, death.command) == ("died", "died:1", f"fleet resume {story.state.run}")
    story.happens(f.EngineStopped(at=1, why="drained"))
    assert by_name(story, alive=False) == {}


def test_an_end_is_told_by_what_it_was_and_nothing_else_any_more() -> None:
    for ending, event in (("landed", "ended"), ("cancelled", "ended"), ("partial", "failed"), ("budget", "failed")):
        story = Story(Policy(max_attempts=1), plan_of("api"))
        story.attempt_fails("api")
        story.happens(f.RunEnded(at=7, ending=ending, why="so it is"))
        [end] = by_name(story, alive=False).values()
        assert (end.event, end.title, end.text) == (event, f"the run has ended: {ending}", "so it is")
