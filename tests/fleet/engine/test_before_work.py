"""Before a worker begins: what a subtask's checks say of its base."""

from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion
from fleet.engine.checks import Gate
from tests.fleet.core.pretend import subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.engine.test_perform import failures
from tests.fleet.fakes import BASE, QUICK, FakeFleet


async def test_a_check_that_passes_before_any_work_was_done_goes_back_without_calling_a_worker() -> None:
    plan = plan_of("a", failure_action="ask")
    fleet = FakeFleet(plan)
    fleet.git.holds[BASE] = frozenset({"a"})
    state = await fleet.run()
    assert failures(state, "a") == [("vacuous", "passes before any work was done: it works")]
    assert fleet.worker.briefs == []
    assert state.ending == "partial"


async def test_a_guard_may_pass_before() -> None:
    guard = Criterion(criterion="nothing broke", run="without bad", fails_before=False)
    own = Criterion(criterion="it works", run="check a")
    fleet = FakeFleet(plan_of("a", acceptance=(own, guard)))
    state = await fleet.run()
    assert state.ending == "landed"
    assert ("base", "without bad") in fleet.worktrees.checked
    assert [(run.command, run.passed, run.output) for run in subtask_of(state, "a").attempts[0].before] == [
        ("check a", False, ""),
        ("without bad", True, ""),
    ]


async def test_a_guard_that_is_red_on_the_base_goes_back_without_calling_a_worker() -> None:
    guard = Criterion(criterion="nothing broke", run="guard", fails_before=False)
    own = Criterion(criterion="it works", run="check a")
    fleet = FakeFleet(plan_of("a", acceptance=(own, guard), failure_action="ask"))
    fleet.worktrees.red.add("guard")
    state = await fleet.run()
    assert failures(state, "a") == [("check", "a guard fails before any work was done: nothing broke")]
    assert fleet.worker.briefs == []


async def test_a_guard_that_is_red_on_a_base_that_may_be_red_stops_no_subtask() -> None:
    guard = Criterion(criterion="nothing broke", run="guard", fails_before=False)
    own = Criterion(criterion="it works", run="check a")
    policy = Policy(**{**dict(QUICK), "check_base": True, "allow_red_base": True})
    fleet = FakeFleet(plan_of("a", acceptance=(own, guard), failure_action="ask"), policy, gate=Gate((guard,)))
    fleet.worktrees.red.add("guard")
    await fleet.run()
    assert fleet.worker.briefs


async def test_a_check_of_the_base_is_run_once_for_all_who_start_from_it() -> None:
    same = (Criterion(criterion="it works", run="check a"),)
    fleet = FakeFleet(plan_of("a", "b", acceptance=same, failure_action="ask"), Policy(**{**dict(QUICK), "workers": 1}))
    await fleet.run()
    assert fleet.worktrees.checked.count((BASE, "check a")) == 1
