"""The plan of a run that is over, to be used again: what worked, in the order in which it had to."""

from datetime import UTC, datetime

from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext, plan_problems
from fleet.read.plan_views import SavedPlan, saved_plan
from tests.fleet.core.policy.test_rollback import begins, deployment, failing
from tests.fleet.core.state.test_areas import answers, began, plans, verified
from tests.fleet.core.story import Story, plan_of


def kept_plan(story: Story) -> SavedPlan:
    found = saved_plan(story.state, "again")
    assert isinstance(found, SavedPlan), found
    assert plan_problems(found.plan, PlanContext()) == ()
    return found


def needs(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {subtask.id: subtask.depends_on for subtask in plan.subtasks}


def test_a_run_that_landed_is_saved_completely_without_its_times_and_its_name() -> None:
    then = datetime(1999, 1, 1, tzinfo=UTC)
    story = Story(plan=plan_of("a", "b needs a", not_before=then))
    story.now = then.timestamp() + 1
    story.happens()
    story.landed("a")
    story.landed("b")
    found = kept_plan(story)
    assert (found.plan.plan_id, found.plan.version, found.plan.goal) == ("again", 1, "the epic")
    assert needs(found.plan) == {"a": (), "b": ("a",)}
    assert {subtask.not_before for subtask in found.plan.subtasks} == {None}
    assert found.left_out == ()


def test_a_split_is_saved_as_its_parts_and_what_was_dropped_is_left_out() -> None:
    story = Story()
    story.planner_plans("a", "b needs a", "c needs b", "odd")
    story.attempt_fails("a", kind="too_complex")
    story.planner_answers(
        split=[{"id": "a", "why": "two things", "into": plan_of("a1", "a2 needs a1").subtasks}],
    )
    story.attempt_fails("odd")
    story.planner_answers(drop=[{"id": "odd", "why": "not wanted"}])
    for id_ in ("a1", "a2", "b", "c"):
        story.landed(id_)
    story.planner_answers(finished=True, synthesis="done")
    found = kept_plan(story)
    assert needs(found.plan) == {"b": ("a1", "a2"), "c": ("b",), "a1": (), "a2": ("a1",)}
    assert found.left_out == (("odd", "dropped: not wanted"),)


def test_what_needed_something_that_was_skipped_needs_what_that_needed() -> None:
    plan = plan_of("a", "b needs a", "c needs b")
    a, b, c = plan.subtasks
    story = Story(plan=plan.model_copy(update={"subtasks": (a, b.model_copy(update={"failure_action": "skip"}), c)}))
    story.landed("a")
    story.attempt_fails("b")
    story.landed("c")
    found = kept_plan(story)
    assert needs(found.plan) == {"a": (), "c": ("a",)}
    assert found.left_out == (("b", "skipped"),)


def test_an_area_is_what_its_planner_made_of_it() -> None:
    story = began()
    plans(story, "auth", "tokens", "login needs tokens")
    story.landed("tokens")
    story.landed("login")
    answers(story, "auth", finished=True, synthesis="signed in")
    verified(story, "auth")
    story.landed("docs")
    story.planner_answers(finished=True, synthesis="all done")
    assert needs(kept_plan(story).plan) == {"docs": ("tokens", "login"), "tokens": (), "login": ("tokens",)}


def test_a_run_that_failed_has_no_plan_to_save() -> None:
    story = Story(plan=plan_of("a", "b"))
    assert "has not ended" in str(saved_plan(story.state, "again"))
    undone = deployment()
    begins(undone, "backup")
    failing(undone, "backup")
    undone.landed("undo")
    assert "was rolled back" in str(saved_plan(undone.state, "again"))
