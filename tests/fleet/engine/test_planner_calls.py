"""A call to a planner: what goes back to it, and what is noticed of its plan."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.plan import Criterion
from fleet.core.plans.revision import Drop, Revision
from fleet.ports.agents import PlannerBrief
from tests.fleet.core.pretend import subtask
from tests.fleet.fakes import FakeFleet, FakePlanner, finishes

pytestmark = pytest.mark.anyio


async def test_a_check_that_proves_nothing_goes_back_once_and_is_then_accepted_with_a_note() -> None:
    idle = subtask("a").model_copy(update={"acceptance": (Criterion(criterion="fine", run="true"),)})

    def plans(brief: PlannerBrief) -> Revision:
        if brief.state["subtasks"]:
            return Revision(assessment="no", drop=(Drop(id="a", why="it proves nothing"),))
        return Revision(assessment="one step", add=(idle,))

    fleet = FakeFleet(planner=FakePlanner(plans))
    await fleet.run()
    refused, taken = fleet.planner.problems[:2]
    assert str(refused[0]).startswith("add[0].acceptance[0].run: `true` always passes")
    assert taken == ()
    [graded] = [fact for fact in fleet.memory.facts if isinstance(fact, f.PlanGraded)]
    assert (graded.version, graded.warnings[0].endswith("(the planner kept this despite the warning)")) == (1, True)


async def test_what_is_worth_a_word_is_noted_and_stops_nothing() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        add = (subtask("a"), subtask("b"))
        shared = tuple(one.model_copy(update={"touches": ("x.py",)}) for one in add)
        return Revision(assessment="two", add=shared) if brief.call == 1 else finishes(brief)

    fleet = FakeFleet(planner=FakePlanner(plans))
    state = await fleet.run()
    assert state.ending == "landed"
    assert state.plan_warnings == (
        "a and b may run at the same time and both change x.py. Order them, or assign it to one",
    )
