"""A plan that a person edited becomes the revision that leads to it, and it is held to what holds for a planner's."""

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import Revision, apply, revision_between
from fleet.core.policy.requests import request_problem
from tests.fleet.core.story import WHO, Story, plan_of


def revised(revision: Revision) -> f.PlanRevised:
    return f.PlanRevised(at=0, call=None, by=WHO, revision=revision)


def made(before: Plan, after: Plan) -> Revision:
    revision = revision_between(before, after, why="so")
    assert isinstance(revision, Revision)
    return revision


def test_what_changed_is_added_revised_and_dropped() -> None:
    before, after = plan_of("a", "b needs a", "c"), plan_of("a", "b", "d needs a")
    revision = made(before, after)
    assert [s.id for s in revision.add] == ["d"]
    assert [(change.id, change.depends_on, change.title) for change in revision.revise] == [("b", (), None)]
    assert [drop.id for drop in revision.drop] == ["c"]
    assert [s for s in apply(before, revision).subtasks if s.id != "c"] == list(after.subtasks)


def test_nothing_changed_is_nothing_to_do() -> None:
    assert not made(plan_of("a"), plan_of("a")).changes_plan


def test_what_can_not_be_said_is_refused() -> None:
    before = plan_of("a", model="m")
    assert "not removed" in str(revision_between(before, plan_of("a"), why="so"))
    assert "the goal" in str(revision_between(before, before.model_copy(update={"goal": "another"}), why="so"))


def test_what_is_gone_already_needs_no_word() -> None:
    revision = revision_between(plan_of("a", "b"), plan_of("a"), why="so", without=[SubtaskId("b")])
    assert isinstance(revision, Revision)
    assert not revision.changes_plan


@pytest.fixture
def story() -> Story:
    return Story(Policy(review=True), plan_of("a", "b needs a"))


def test_a_person_edits_the_plan_that_waits_and_then_approves_it(story: Story) -> None:
    edit = revised(made(story.state.plan, plan_of("a", "b", "c needs b")))
    assert request_problem(story.state, edit) is None
    story.happens(edit)
    assert story.state.plan.version == 1
    assert story.state.versions[-1].by == WHO
    assert request_problem(story.state, f.PlanApproved(at=0, version=0, by=WHO)) is not None, (
        "of a version that was not seen"
    )
    story.happens(f.PlanApproved(at=0, version=1, by=WHO))
    assert story.statuses() == {"a": "running", "b": "running", "c": "waiting"}


def test_an_edit_leaves_the_planner_alone_that_is_being_asked() -> None:
    story = Story(Policy())
    story.planner_plans("a")
    story.attempt_fails("a")
    call = story.state.planning.open
    assert call is not None
    before = story.state.planning
    story.happens(revised(Revision(assessment="more", add=plan_of("z").subtasks)))
    assert (story.state.planning.open, story.state.planning.reading) == (call, before.reading)
    story.planner_answers(retry=[{"id": "a", "guidance": "again"}])
    assert story.status("a") == "running"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Revision(assessment="x", add=plan_of("c needs zzz").subtasks), "zzz"),
        (Revision(assessment="x", finished=True, synthesis="done"), "the planner can ask questions and end the run"),
        (Revision(assessment="x", drop=({"id": "a", "why": "no"},)), "depends on 'a'"),
    ],
    ids=["a dependency that is not there", "the end", "what others need"],
)
def test_what_does_not_hold_together_is_refused(edit: Revision, why: str, story: Story) -> None:
    assert why in str(request_problem(story.state, revised(edit)))


def test_what_is_being_worked_on_is_too_late_to_change() -> None:
    story = Story(Policy(), plan_of("a"))
    assert "in progress" in str(request_problem(story.state, revised(made(story.state.plan, Plan(goal="the epic")))))
