"""Errors of ours: nothing is used up or paid for twice, one thing is set aside, and the rest of the run goes on."""

import errno
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from fleet.core.base.ids import RunId, Sha
from fleet.core.facts import facts as f
from fleet.core.facts.failures import HOW_TO_REPORT
from fleet.core.plans.plan import Criterion
from fleet.core.plans.revision import Revision
from fleet.core.state.state import RunState
from fleet.engine.internal_errors import failure_of, unwrapped
from fleet.engine.loop import Engine
from fleet.ports.agents import PlannerBrief, WorkerBrief
from fleet.ports.worktrees import Change, EffectError, Merged, Signature
from tests.fleet.core.pretend import subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import (
    DONE,
    FakeFleet,
    FakeIntegrator,
    FakeLease,
    FakePlanner,
    FakeWorker,
    FakeWorktrees,
    finishes,
)


@dataclass
class Breaking(FakeWorktrees):
    """Leases that break: the commit of a subtask so many times, and the checks of a commit."""

    commits: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[FakeLease]:
        async with super().lease(base):
            yield BreakingLease(self, base)


@dataclass
class BreakingLease(FakeLease):
    worktrees: Breaking

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | f.Failure:
        break_down(self.worktrees.commits, signature.subtask)
        return await super().commit(signature, touches)

    async def check(self, criterion: Criterion, *, lands: bool = False) -> f.CheckRun:
        break_down(self.worktrees.checks, self.base)
        return await super().check(criterion, lands=lands)


@dataclass
class BreakingIntegrator(FakeIntegrator):
    """Merging a subtask, or publishing a run, raises so many times."""

    left: Counter[str] = field(default_factory=Counter)

    async def merge(self, tip: Sha, members: Sequence[f.Member]) -> Merged:
        for member in members:
            break_down(self.left, member.subtask)
        return await super().merge(tip, members)

    async def publish(self, run: RunId, tip: Sha) -> str | None:
        break_down(self.left, run)
        return await super().publish(run, tip=tip)


def break_down(left: Counter[str], name: str) -> None:
    if left[name] > 0:
        left[name] -= 1
        raise KeyError(name)


def with_broken_leases(fleet: FakeFleet, **broken: Counter[str]) -> FakeFleet:
    fleet.worktrees = Breaking(fleet.git, **broken)  # type: ignore[arg-type]
    return fleet


def with_broken_landing(fleet: FakeFleet, left: Counter[str]) -> FakeFleet:
    fleet.integrator = BreakingIntegrator(fleet.git, left=left)
    return fleet


def is_set_aside(fleet: FakeFleet, state: RunState, id_: str, step: str) -> None:
    """Only this subtask is, and everything else has landed."""
    subtask = subtask_of(state, id_)
    assert subtask.failure is not None
    assert (subtask.failure.kind, subtask.counted, len(subtask.attempts)) == ("internal", 0, 1)
    assert subtask.failure.summary.startswith(f"internal error while fleet {step}: KeyError: ")
    assert "Traceback (most recent call last)" in subtask.failure.evidence
    assert subtask.failure.evidence.endswith(HOW_TO_REPORT)
    [question] = state.open_questions()
    assert (question.about, question.aside, question.evidence) == (id_, True, subtask.failure.evidence)
    assert all(other.landed for other in state.subtasks.values() if other.id != id_)
    assert (state.ending, state.ending_why) == ("partial", f"set aside because of an internal error: {id_}")
    assert max(fleet.worker.paid.values()) == 1


async def test_a_commit_that_raises_once_is_made_and_the_work_is_not_done_again() -> None:
    fleet = with_broken_leases(FakeFleet(plan_of("a", "b", "c")), commits=Counter(b=1))
    state = await fleet.run()
    assert (state.ending, state.attempts, tuple(state.incidents)) == ("landed", 3, ())
    assert fleet.worker.paid == {"a": 1, "b": 1, "c": 1}


async def test_a_commit_that_always_raises_sets_its_subtask_aside() -> None:
    fleet = with_broken_leases(FakeFleet(plan_of("a", "b", "c", failure_action="abort")), commits=Counter(b=99))
    is_set_aside(fleet, await fleet.run(), "b", "carried out the attempt")


async def test_one_member_of_a_batch_that_can_not_be_merged_is_set_aside_and_lands_when_it_can() -> None:
    left = Counter(b=99)
    fleet = with_broken_landing(FakeFleet(plan_of("a", "b", "c")), left)
    state = await fleet.run()
    is_set_aside(fleet, state, "b", "landed the finished work")
    assert subtask_of(state, "b").attempts[0].commit == fleet.git.pins["b", 1].commit

    left.clear()
    fleet.memory.appends.append([f.RunReopened(at=fleet.clock.now(), by="ada")])
    fleet.memory.ask(f.RetryRequested(at=fleet.clock.now(), subtask="b", guidance="", by="ada"))
    state = await fleet.run()
    assert (state.ending, state.attempts, fleet.worker.paid["b"]) == ("landed", 3, 1)


async def test_a_worker_that_raises_after_it_called_a_model_is_not_run_again_and_its_work_is_kept() -> None:
    def works(brief: WorkerBrief) -> f.Report:
        if brief.subtask.id == "b":
            raise KeyError("oops")
        return DONE

    fleet = FakeFleet(plan_of("a", "b", "c"), worker=FakeWorker(works))
    state = await fleet.run()
    is_set_aside(fleet, state, "b", "ran the worker")
    assert (subtask_of(state, "b").attempts[0].kept, subtask_of(state, "b").attempts[0].commit) == (True, "c-b-1")


async def test_a_planner_that_raises_is_set_aside_and_what_it_planned_goes_on() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        if brief.call > 1:
            raise KeyError("oops")
        return Revision(assessment="x", add=plan_of("a", "b needs a").subtasks)

    fleet = FakeFleet(planner=FakePlanner(plans))
    state = await fleet.run()
    assert (state.ending, state.commits, len(fleet.planner.briefs)) == ("partial", 2, 2)
    assert state.ending_why == "set aside because of an internal error: the planner"
    [question] = state.open_questions()
    assert (question.planner, question.aside, "KeyError" in question.evidence) == (True, True, True)


async def test_a_planner_is_called_again_when_a_person_says_so() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        if brief.call == 1:
            raise KeyError("oops")
        return finishes(brief)

    fleet = FakeFleet(planner=FakePlanner(plans))
    assert (await fleet.run()).ending == "failed"
    fleet.memory.appends.append([f.RunReopened(at=fleet.clock.now(), by="ada")])
    fleet.memory.ask(f.QuestionAnswered(at=fleet.clock.now(), question="q1", answer="call it", by="ada"))
    assert ((await fleet.run()).ending, len(fleet.planner.briefs)) == ("landed", 2)


async def test_a_result_branch_that_can_not_be_moved_is_not_tried_a_third_time() -> None:
    fleet = FakeFleet(plan_of("a"))
    left = Counter[str]({fleet.first.run: 99})
    state = await with_broken_landing(fleet, left).run()
    assert (state.ending, state.commits, left[state.run]) == ("partial", 1, 97)
    assert "KeyError" in state.publish_problem


async def test_a_check_that_always_raises_sets_its_subtask_aside() -> None:
    fleet = with_broken_leases(FakeFleet(plan_of("a", "b", "c")), checks=Counter({"c-b-1": 99}))
    is_set_aside(fleet, await fleet.run(), "b", "checked the finished work")


async def test_what_can_not_be_recorded_concerns_only_who_proposed_it() -> None:
    fleet, refused = FakeFleet(plan_of("a", "b")), list[KeyError]()

    async def propose(engine: Engine) -> None:
        try:
            await engine.record(f.AttemptVerified(at=0, subtask="no-such", number=1, checks=()))
        except KeyError as error:
            refused.append(error)

    state = await fleet.run(propose)
    assert (state.ending, len(refused), state.warnings) == ("landed", 1, ())


def test_the_exception_of_a_group_that_nobody_expected_decides_what_it_is() -> None:
    expected = EffectError(f.Failure(kind="infrastructure", summary="no room"))
    bug = KeyError("oops")
    assert unwrapped(ExceptionGroup("tasks", [expected, ExceptionGroup("more", [bug])])) is bug
    assert failure_of(ExceptionGroup("tasks", [expected]), "tried").summary == "no room"


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "no"), MemoryError(), RuntimeError("can't start new thread")])
def test_a_machine_without_processes_memory_or_threads_is_no_bug(error: Exception) -> None:
    assert failure_of(error, "tried").kind == "infrastructure"


async def test_advice_is_left_out_with_a_word_and_its_trace() -> None:
    def raises(*_: object) -> str:
        raise KeyError("oops")

    fleet = FakeFleet(plan_of("a", "b"))
    fleet.worktrees.patch = raises
    state = await fleet.run()
    assert (state.ending, state.attempts) == ("landed", 2)
    told = [f"left out because of an error: review hints for {id_}: KeyError: 'oops'" for id_ in "ab"]
    assert sorted(state.warnings) == told
    traces = [fact.evidence for fact in fleet.memory.facts if isinstance(fact, f.WarningNoted)]
    assert all("in raises" in trace for trace in traces)
