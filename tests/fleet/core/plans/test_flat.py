"""Flat runs: one subtask for the whole epic."""

from fleet.core.flat import flat_plan, flat_revision, is_flat, together
from fleet.core.plan import PLANNER, Plan
from fleet.core.policy import Policy
from fleet.core.revision import Revision
from fleet.core.views import planner_state, status
from tests.core.pretend import subtask
from tests.core.story import Story, plan_of


def test_what_a_planner_took_apart_is_one_subtask_with_every_check() -> None:
    one = subtask("a").model_copy(update={"touches": ("a.py",), "context": ("x.py",), "risk": "high"})
    two = subtask("b", "a").model_copy(update={"touches": ("b.py", "a.py")})
    [made] = flat_revision(Revision(assessment="two steps", add=(one, two)), "Do both\nwell").add
    assert (made.id, made.title, made.depends_on, made.risk) == ("a", "Do both", (), "high")
    assert [check.run for check in made.acceptance] == ["check a", "check b"]
    assert (made.touches, made.context) == (("a.py", "b.py"), ("x.py",))
    assert made.goal == "Do all of this:\n\n1. Build a\nBuild a.\n\n2. Build b\nBuild b."


def test_one_that_may_change_anything_bounds_nobody() -> None:
    bounded = subtask("a").model_copy(update={"touches": ("a.py",)})
    assert together((bounded, subtask("b")), "both").touches == ()


def test_an_area_becomes_work_for_one_worker() -> None:
    area = subtask("a").model_copy(update={"worker": PLANNER})
    assert together((area, subtask("b")), "both").worker == "coder"


def test_one_subtask_stays_as_it_is() -> None:
    revision = Revision(assessment="one", add=(subtask("a"),))
    assert flat_revision(revision, "goal") == revision
    assert flat_plan(plan_of("a")) == plan_of("a")
    assert is_flat(flat_plan(plan_of("a", "b needs a")))
    assert not is_flat(Plan())


def test_the_planner_is_told_and_a_status_shows_it() -> None:
    story = Story(Policy(flat=True))
    assert planner_state(story.state, 0)["flat"] is True
    assert status(story.state, 0, alive=True)["flat"] is None
    story.planner_plans("a")
    assert status(story.state, 0, alive=True)["flat"] is True
    wide = Story()
    wide.planner_plans("a", "b")
    assert "flat" not in planner_state(wide.state, 0)
    assert status(wide.state, 0, alive=True)["flat"] is False
