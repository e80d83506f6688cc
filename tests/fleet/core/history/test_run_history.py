"""What a run knows of the model service: what all wait for, when a human is asked, and when that is settled."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.budget import outage_text
from fleet.read.run import status_view
from tests.fleet.core.story import Story, plan_of

POLICY = Policy(service_wait_s=100)


def at_work() -> Story:
    """A run whose worker was answered already."""
    story = Story(POLICY)
    story.planner_answers(add=plan_of("api", "docs").subtasks)
    story.model_is_called("api")
    return story


def changed(story: Story, condition: f.ServiceCondition, scope: str = "", why: str = "HTTP 529") -> None:
    story.happens(f.ServiceChanged(at=story.now, scope=scope, condition=condition, why=why))


def test_an_outage_is_shown_and_costs_no_attempt() -> None:
    story = at_work()
    changed(story, "down")
    (shown,) = status_view(story.state, story.now, alive=True).service
    assert (shown.condition, shown.family, shown.why) == ("down", None, "HTTP 529")
    assert status_view(story.state, story.now, alive=False).service == ()
    assert (story.status("api"), story.questions()) == ("running", [])
    changed(story, "up")
    assert status_view(story.state, story.now, alive=True).service == ()


def test_a_human_is_asked_when_an_outage_lasts_and_its_end_settles_the_question() -> None:
    story = at_work()
    changed(story, "down")
    story.time_passes_to_the_next_wake()
    (question,) = story.questions()
    assert "does not respond (HTTP 529)" in question
    assert question.endswith("Without an answer, the run ends as partial after 12 hours. `fleet resume` continues it.")
    changed(story, "up")
    assert story.questions() == []
    assert [question.answered_by for question in story.state.questions.values()] == ["fleet"]
    assert story.state.planning.unread.answers == ()


def test_a_refused_key_is_asked_about_at_once_and_again_after_an_answer_that_did_not_help() -> None:
    story = at_work()
    changed(story, "refused", why="HTTP 401")
    (question,) = story.questions()
    assert "ends as partial after 10 minutes" in question
    story.now += 10
    changed(story, "refused", why="HTTP 401")
    assert len(story.questions()) == 1
    calls = story.state.planning.calls
    story.human_answers("q1", "fixed")
    assert (story.questions(), story.state.planning.calls) == ([], calls)
    story.now += 10
    changed(story, "refused", why="HTTP 401")
    assert len(story.questions()) == 1


def test_a_refusal_that_no_one_fixes_ends_the_run_as_partial_though_attempts_still_wait() -> None:
    story = at_work()
    changed(story, "refused", why="HTTP 401")
    assert story.status("api") == "running"
    story.time_passes_to_the_next_wake()
    assert (story.state.ending, "no one answered q1" in story.state.ending_why) == ("partial", True)


def test_a_refusal_ends_the_run_also_while_its_planner_is_called() -> None:
    story = at_work()
    story.landed("docs")
    story.attempt_fails("api")
    assert story.state.planning.open is not None
    changed(story, "refused", why="HTTP 401")
    story.time_passes_to_the_next_wake()
    assert (story.state.ending, "refuses us (HTTP 401)" in story.state.ending_why) == ("partial", True)


def test_an_outage_is_waited_for_much_longer_than_an_answer_but_not_for_ever() -> None:
    story = at_work()
    changed(story, "down")
    story.time_passes(POLICY.service_wait_s)
    story.time_passes(POLICY.service_lost_s - 1)
    assert (story.questions() != [], story.state.ended) == (True, False)
    story.time_passes_to_the_next_wake()
    assert (story.state.ending, "does not respond (HTTP 529)" in story.state.ending_why) == ("partial", True)


def test_an_answer_restarts_the_wait_for_an_outage() -> None:
    story = at_work()
    changed(story, "down")
    story.time_passes(POLICY.service_wait_s)
    story.time_passes(POLICY.service_lost_s - 1)
    story.human_answers("q1", "it will come back")
    story.time_passes(POLICY.service_lost_s - 1)
    assert not story.state.ended
    assert len(story.questions()) == 1


def test_a_limit_of_one_family_does_not_end_the_work_of_the_others() -> None:
    story = at_work()
    changed(story, "limited", "opus", "HTTP 429")
    story.time_passes(POLICY.service_wait_s)
    story.time_passes(POLICY.service_lost_s - 1)
    story.model_is_called("api")
    story.time_passes(2)
    assert not story.state.ended


def test_limits_of_two_families_are_two_matters() -> None:
    story = at_work()
    changed(story, "limited", "haiku", "HTTP 429")
    changed(story, "limited", "opus", "HTTP 429")
    changed(story, "up", "haiku")
    assert [outage_text(*wait) for wait in story.state.service.items()] == [
        "the model service for opus rejects all calls because of a limit (HTTP 429)"
    ]


def test_another_engine_finds_out_again() -> None:
    story = at_work()
    changed(story, "down")
    story.happens(f.EngineStarted(at=story.now, epoch=2, pid=1, host="h", version="0"))
    assert story.state.service == {}


def test_a_run_that_continues_with_another_key_needs_no_answer() -> None:
    story = at_work()
    changed(story, "refused", why="HTTP 401")
    story.time_passes_to_the_next_wake()
    assert (story.state.ending, len(story.questions())) == ("partial", 1)
    story.happens(f.RunReopened(at=story.now, by="ada"))
    story.happens(f.EngineStarted(at=story.now, epoch=2, pid=1, host="h", version="0"))
    assert (story.questions(), story.state.planning.unread.answers) == ([], ())
    story.attempt_fails("api")
    assert story.state.planning.open is not None, "something may begin"


def test_a_run_that_no_model_ever_answered_fails_without_a_question() -> None:
    story = Story(POLICY)
    changed(story, "refused", why="HTTP 401")
    assert story.questions() == []


@pytest.mark.parametrize("condition", ["down", "limited", "refused"])
def test_each_condition_has_its_words(condition: f.ServiceCondition) -> None:
    story = at_work()
    changed(story, condition, why="because")
    assert "because" in outage_text(*next(iter(story.state.service.items())))
