"""A plan that failed after it changed something is undone by its rollback plan; and what needs no file to be done."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.plan import FailureAction, Plan
from fleet.core.policy.requests import missing_rollback, request_problem
from fleet.core.state.status import progress
from tests.fleet.core.pretend import attempt_at, started
from tests.fleet.core.story import Story, plan_of


def deployment(action: FailureAction = "replan", **more: object) -> Story:
    """Two steps in a row, and a third beside them; undone by one."""
    plan = plan_of("backup", "deploy needs backup", "notify", failure_action=action)
    undo = plan_of("undo").model_copy(update={"plan_id": "rollback-1"})
    return story_of(plan, undo, **more)


def story_of(plan: Plan, undo: Plan | None, **more: object) -> Story:
    story = Story(plan=plan)
    first = started(story.policy, plan).model_copy(update={"rollback": undo, **more})
    story.facts, story._state = [first], evolve(None, first)
    story.happens(f.EngineStarted(at=0.0, epoch=1, pid=1, host="here", version="1"))
    return story


def begins(story: Story, *ids: str) -> None:
    for id_ in ids:
        story.worker_starts(id_)


def is_done_unchanged(story: Story, id_: str, **result: object) -> None:
    number = story.current(id_).number
    report = f.Report.model_validate({"status": "done", "summary": f"did {id_}", "result": result})
    story.happens(
        f.AttemptUnchanged(at=story.now, subtask=id_, number=number, report=report),
        f.AttemptVerified(at=story.now, subtask=id_, number=number, checks=()),
    )


def failing(story: Story, id_: str, **result: object) -> None:
    report = f.Report.model_validate({"status": "failed", "summary": "no", "result": result}) if result else None
    story.attempt_fails(id_, report=report)


def test_a_step_that_changed_no_file_is_done_without_a_commit_and_what_needs_it_begins() -> None:
    story = deployment()
    begins(story, "backup")
    is_done_unchanged(story, "backup")
    assert story.status("backup") == "merged"
    assert story.of("backup").unchanged
    assert (story.state.commits, progress(story.state).done, story.state.tip) == (0, 1, story.state.base)
    assert story.state.landing.queue == ()
    assert story.status("deploy") == "running"


@pytest.mark.parametrize("action", ["replan", "abort"])
def test_a_failure_after_changes_rolls_back_at_once(action: FailureAction) -> None:
    story = deployment(action)
    begins(story, "backup", "notify")
    is_done_unchanged(story, "backup")
    begins(story, "deploy")
    failing(story, "deploy")
    assert [fact.why for fact in story.facts_of(f.RollbackStarted)] == ["deploy failed: red"]
    assert story.statuses() == {"backup": "merged", "deploy": "dropped", "notify": "dropped", "undo": "running"}
    assert attempt_at("notify", 1) not in story.effects(), "what else ran is stopped"
    assert attempt_at("undo", 1) in story.effects()
    is_done_unchanged(story, "undo")
    assert story.state.ending == "aborted"
    assert story.state.ending_why == "deploy failed: red; undone by rollback-1"
    assert story.facts_of(f.PlannerCalled) == []


def test_what_changed_nothing_by_its_own_word_aborts_and_nothing_is_undone() -> None:
    story = deployment("abort")
    begins(story, "backup")
    failing(story, "backup", changed=False)
    assert story.facts_of(f.RollbackStarted) == []
    assert (story.state.ending, story.state.ending_why) == ("aborted", "backup failed: red")


def test_what_failed_without_a_word_may_have_changed_something() -> None:
    story = deployment("abort")
    begins(story, "backup")
    failing(story, "backup")
    assert story.status("undo") == "running"


def test_what_never_began_has_changed_nothing() -> None:
    story = deployment("abort")
    story.attempt_fails("backup")
    assert story.state.ending == "aborted"
    assert story.facts_of(f.RollbackStarted) == []


def test_who_wants_to_be_asked_is_asked() -> None:
    story = deployment("ask")
    begins(story, "backup")
    failing(story, "backup")
    assert story.facts_of(f.RollbackStarted) == []
    assert story.status("backup") == "escalated"


def test_without_a_rollback_plan_the_planner_decides_as_ever() -> None:
    story = story_of(plan_of("backup"), None)
    begins(story, "backup")
    failing(story, "backup")
    assert story.state.planning.open is not None


def test_a_rollback_that_fails_goes_to_a_human_and_the_end_says_so() -> None:
    story = deployment()
    begins(story, "backup")
    failing(story, "backup")
    begins(story, "undo")
    failing(story, "undo")
    assert story.status("undo") == "escalated"
    assert len(story.facts_of(f.RollbackStarted)) == 1
    story.time_passes_to_the_next_wake()
    assert story.state.ending == "aborted"
    assert "the rollback rollback-1 did not finish (undo)" in story.state.ending_why


def test_an_open_question_is_settled_by_the_rollback() -> None:
    story = deployment()
    begins(story, "backup", "notify")
    story.happens(f.QuestionAsked(at=0, about="deploy", question="how?"))
    failing(story, "notify")
    assert story.questions() == []


def test_what_was_about_to_land_and_does_not_is_let_go() -> None:
    story = deployment()
    begins(story, "backup", "notify")
    story.work_is_done("notify")
    failing(story, "backup")
    assert story.status("notify") == "landing"
    red = f.Ejected(subtask="notify", attempt=1, failure=f.Failure(kind="integration", summary="red"))
    number = story.state.landing.open_batches[0].number
    story.happens(f.BatchTested(at=0, number=number, tip=story.state.tip, ejected=(red,), red=True))
    assert story.status("notify") == "dropped"
    assert story.questions() == []


def test_what_was_rolled_back_is_not_tried_again_in_the_same_run() -> None:
    story = deployment()
    begins(story, "backup")
    failing(story, "backup")
    again = f.RetryRequested(at=0, subtask="backup", guidance="", by="ada")
    assert request_problem(story.state, again) == "backup was rolled back. Start a new run with a corrected plan"


def test_a_rollback_plan_that_is_named_and_was_not_found_is_warned_about() -> None:
    plan = plan_of("a").model_copy(update={"rollback_plan": "undo"})
    [warning] = missing_rollback(plan, None)
    assert "rollback plan 'undo' not found" in warning
    assert missing_rollback(plan, plan_of("undo")) == ()
    assert missing_rollback(plan_of("a"), None) == ()
