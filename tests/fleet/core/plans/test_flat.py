"""Flat runs: one subtask for the whole epic."""

from fleet.core.plans.limits import Policy
from fleet.core.plans.parameters import flat_plan, flat_revision, is_flat, merge_subtasks
from fleet.core.plans.plan import PLANNER, Plan
from fleet.core.plans.revision import Revision
from fleet.core.policy.planner_view import planner_state
from fleet.read.run import status_view
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import Story, plan_of


def test_what_a_planner_took_apart_is_one_subtask_with_every_check() -> None:
    one = subtask("a").model_copy(update={"touches": ("a.py",), "context": ("x.py",), "risk": "high"})
    two = subtask("b", "a").model_copy(update={"touches": ("b.py", "a.py")})
    [made] = flat_revision(Revision(assessment="two steps", add=(one, two)), "Do both\nwell").add
    assert (made.id, made.title, made.depends_on, made.risk) == ("a", "Do both", (), "high")
    assert [check.run for check in made.acceptance] == ["check a", "check b"]
    assert (made.touches, made.context) == (("a.py", "b.py"), ("x.py",))
    assert made.goal == "Do all of this:\n\n1. Build a\nBuild a.\n\n2. Build b\nBuild b."


def test_with_a_subtask_that_may_change_anything_so_may_the_merged_one() -> None:
    bounded = subtask("a").model_copy(update={"touches": ("a.py",)})
    assert merge_subtasks((bounded, subtask("b")), "both").touches == ()


def test_an_area_becomes_work_for_one_worker() -> None:
    area = subtask("a").model_copy(update={"worker": PLANNER})
    assert merge_subtasks((area, subtask("b")), "both").worker == "coder"


def test_one_subtask_stays_as_it_is() -> None:
    revision = Revision(assessment="one", add=(subtask("a"),))
    assert flat_revision(revision, "goal") == revision
    assert flat_plan(plan_of("a")) == plan_of("a")
    assert is_flat(flat_plan(plan_of("a", "b needs a")))
    assert not is_flat(Plan())


def test_the_planner_sees_that_a_run_is_flat_and_so_does_a_status() -> None:
    story = Story(Policy(flat=True))
    assert planner_state(story.state, 0)["flat"] is True
    assert status_view(story.state, 0, alive=True).flat is None
    story.planner_plans("a")
    assert status_view(story.state, 0, alive=True).flat is True
    wide = Story()
    wide.planner_plans("a", "b")
    assert "flat" not in planner_state(wide.state, 0)
    assert status_view(wide.state, 0, alive=True).flat is False
