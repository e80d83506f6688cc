"""What a run needs from a person: each thing once, with what it takes to put it into words."""

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.question_view import Approval, Needed, kinds_of, needed
from tests.fleet.core.story import Story, plan_of


def test_each_open_question_is_needed_and_its_kind_is_said_once() -> None:
    story = Story(Policy(max_attempts=1), plan_of("web", "api", failure_action="ask"))
    story.attempt_fails("web")
    story.attempt_fails("api")
    first, second = needed(story.state, story.now, alive=True)
    assert [first.question, second.question] == [question.id for question in story.state.open_questions()]
    assert first.key == f"q:{first.question}" != second.key
    assert kinds_of((first, second)) == ("answer",)


def test_a_plan_that_waits_says_what_of_it_does() -> None:
    story = Story(Policy(review=True), plan_of("web", "api"))
    (need,) = needed(story.state, story.now, alive=True)
    assert need.approval == Approval(subtasks=story.state.plan.ids, is_whole_plan=True, objections=())


def test_a_pause_without_a_process_comes_after_the_process() -> None:
    story = Story(Policy(), plan_of("web"))
    story.happens(f.Paused(at=story.now, by="ada"))
    assert needed(story.state, story.now, alive=False) == (Needed("resume", "resume"), Needed("pause", "unpause"))
