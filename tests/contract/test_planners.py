"""The guarantees of a planner that the engine relies on: of one with a model, and of the one in its tests."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Failure
from fleet.core.plans.revision import Problem, Revision
from fleet.ports.agents import Planner, PlannerBrief
from tests.agents.conftest import FakeMeter, Script, agents_for, fails, model, no_environment, says, text, use
from tests.fleet.eyes import Files
from tests.fleet.fakes import FINISH, FakePlanner

__all__ = ["model", "no_environment"]  # fixtures of others
pytestmark = pytest.mark.anyio
REFUSED = Failure(kind="configuration", summary="no such key")


@dataclass
class Rig:
    """A planner that plans, or can't, and what the engine takes of it."""

    planner: Planner
    plans: Callable[[], None]
    """It will submit `FINISH`."""
    breaks: Callable[[], None]
    """The model will not answer."""
    meter: FakeMeter = field(default_factory=FakeMeter)
    taken: list[Revision] = field(default_factory=list)

    async def call(self) -> Failure | None:
        brief = PlannerBrief(run=RunId("r1"), call=1, epic="Say hello", state={"run": "r1", "subtasks": []})
        return await self.planner.plan(brief, Files({"README.md": "# hi\n"}), self._submit, self.meter)

    async def _submit(self, revision: Revision) -> Sequence[Problem]:
        self.taken.append(revision)
        return ()


@pytest.fixture(params=["fake", "model"])
async def rig(request: pytest.FixtureRequest, model: Script, tmp_path: Path) -> AsyncIterator[Rig]:
    if request.param == "fake":
        fake = FakePlanner(lambda _: FINISH)
        yield Rig(fake, lambda: None, lambda: setattr(fake, "plans", lambda _: REFUSED))
        return
    plan = FINISH.model_dump(mode="json", exclude_defaults=True)
    async with agents_for(model, tmp_path) as agents:
        yield Rig(
            agents.planner,
            lambda: model.will(says(use("submit_revision", plan, id="t1")), says(text("done"), stop="end_turn")),
            lambda: model.will(*(fails(401, "authentication_error", "no such key") for _ in range(3))),
        )


async def test_a_plan_is_submitted_once_it_is_accepted_and_no_failure(rig: Rig) -> None:
    rig.plans()
    assert await rig.call() is None
    assert rig.taken == [FINISH]


async def test_a_planner_without_an_answer_returns_a_failure_and_submits_nothing(rig: Rig) -> None:
    rig.breaks()
    failure = await rig.call()
    assert isinstance(failure, Failure)
    assert failure.kind == "configuration"
    assert rig.taken == []


async def test_each_call_is_reserved_before_it_is_charged(rig: Rig) -> None:
    rig.plans()
    await rig.call()
    assert rig.meter.called
    assert len(rig.meter.reserved) >= len(rig.meter.uses) > 0
