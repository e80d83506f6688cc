"""A run that waits for a person: what it needs, what was tried, what waits, until when, and what an answer does."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.requests import fact_of
from fleet.read.question_view import kinds_of, needed, question_view
from fleet.read.run import status_view
from fleet.read.run_view import run_word
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def story() -> Story:
    """`web` failed twice and three others wait for it; nothing else can be done."""
    story = Story(
        Policy(max_attempts=2, answer_wait_s=600),
        plan_of("web", "docs needs web", "site needs docs", "app needs web", failure_action="ask"),
        now=100,
    )
    story.attempt_fails("web")
    return story


def test_a_run_with_a_question_and_other_work_is_running() -> None:
    story = Story(plan=plan_of("web", "api", failure_action="ask"))
    story.attempt_fails("web")
    assert run_word(story.state, story.now, alive=True) == "running"
    (question,) = status_view(story.state, story.now, alive=True).questions
    assert question.ends_in_s is None
    assert kinds_of(needed(story.state, story.now, alive=True)) == ("answer",)


def test_it_ends_when_it_says_that_it_does(story: Story) -> None:
    (question,) = status_view(story.state, story.now, alive=True).questions
    assert question.ends_in_s is not None
    story.time_passes(question.ends_in_s - 1)
    assert run_word(story.state, story.now, alive=True) == "waiting for an answer"
    story.time_passes(1)
    assert run_word(story.state, story.now, alive=True) == "partial"
    assert kinds_of(needed(story.state, story.now, alive=True)) == ()


def test_nothing_ends_a_run_that_no_process_runs(story: Story) -> None:
    (question,) = status_view(story.state, story.now, alive=False).questions
    assert question.ends_in_s is None
    assert kinds_of(needed(story.state, story.now, alive=False)) == ("resume", "answer")


def test_a_paused_run_waits_without_a_limit(story: Story) -> None:
    story.happens(f.Paused(at=story.now, by="ada"))
    view = status_view(story.state, story.now, alive=True)
    assert (view.ends_in_s, view.needs) == (None, ("answer", "unpause"))


def test_every_option_is_an_answer(story: Story) -> None:
    (question,) = story.state.open_questions()
    assert question.options == ("retry", "drop it")
    story.human_answers(question.id, "retry")
    assert story.status("web") == "failed"


def test_an_answer_is_not_asked_for_again(story: Story) -> None:
    story.human_answers("q1", "retry")
    assert story.questions() == []
    assert story.state.planning.why == "answers"
    story.planner_answers(retry=[{"id": "web", "guidance": "once more"}])
    story.attempt_fails("web")
    assert [question.id for question in story.state.open_questions()] == ["q2"]


@pytest.mark.parametrize("has_planner", [True, False])
def test_drop_it_drops_the_subtask_also_without_a_planner(*, has_planner: bool) -> None:
    story = Story(Policy(max_attempts=1), plan_of("web", "api", failure_action="ask"))
    story.happens(f.EngineStarted(at=0.0, epoch=2, pid=1, host="here", version="1", planner=has_planner))
    story.attempt_fails("web")
    request = f.QuestionAnswered(at=story.now, question="q1", answer="Drop it", by="ada")
    story.happens(fact_of(story.state, request))
    assert story.status("web") == ("failed" if has_planner else "dropped")
    assert question_view(story.state, story.question("q1"), story.now).answer == "Drop it"
    assert story.of("web").question is None
