"""Without an API key there is no planner: failures go to a human at once, and the run still ends."""

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from tests.fleet.core.story import Story, plan_of


def keyless(*lines: str) -> Story:
    """A given plan, continued by an engine without a key."""
    story = Story(Policy(max_attempts=4, answer_wait_s=60), plan_of(*lines))
    story.happens(f.EngineStarted(at=0.0, epoch=2, pid=1, host="here", version="1", planner=False))
    return story


def test_a_plan_lands_without_a_planner() -> None:
    story = keyless("a", "b needs a")
    story.landed("a")
    story.landed("b")
    assert story.state.ending == "landed"
    assert story.facts_of(f.PlannerCalled) == []


def test_the_first_failure_is_a_question_and_the_rest_goes_on() -> None:
    story = keyless("a", "b")
    story.attempt_fails("a")
    assert story.status("b") == "running"
    story.landed("b")
    assert [question.about for question in story.state.open_questions()] == ["a"]
    assert story.facts_of(f.PlannerCalled) == []
    story.time_passes(61)
    assert story.state.ending == "partial"


def test_an_answer_retries_with_its_words() -> None:
    story = keyless("a")
    story.attempt_fails("a")
    [question] = story.state.open_questions()
    story.human_answers(question.id, "use the other compiler")
    assert story.current("a").number == 2
    assert story.current("a").guidance == "use the other compiler"
    story.landed("a")
    assert story.state.ending == "landed"


def test_a_key_brings_the_planner_back() -> None:
    story = keyless("a")
    story.attempt_fails("a")
    story.happens(f.EngineStarted(at=1.0, epoch=3, pid=1, host="here", version="1"))
    assert story.state.has_planner
