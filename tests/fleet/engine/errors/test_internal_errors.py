"""Errors of ours: nothing is used up or paid for twice, one thing is set aside, and the rest of the run goes on."""

import errno
from typing import Any

import pytest

from fleet.core.history.evolve import evolve as evolve_fact
from fleet.core.plans.revision import Revision
from fleet.core.policy import decide as policy
from fleet.core.state import facts as f
from fleet.core.state.failures import HOW_TO_REPORT
from fleet.core.state.state import RunState
from fleet.engine.errors import bugs
from fleet.engine.errors.internal_errors import failure_of, unwrapped
from fleet.ports.agents import PlannerBrief, WorkerBrief
from fleet.ports.worktrees import EffectError
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import DONE, FakeFleet, FakeIntegrator, FakeLease, FakePlanner, FakeWorker, finishes


def broken(real: Any, *, of: str, times: int = 99) -> Any:
    """A method that raises for a subtask, so many times."""
    left = [times]

    async def method(self: Any, first: Any, *rest: Any, **more: Any) -> Any:
        if left[0] > 0 and of in str((first, rest)):
            left[0] -= 1
            raise KeyError(f"no {of}")
        return await real(self, first, *rest, **more)

    return method


def is_set_aside(fleet: FakeFleet, state: RunState, id_: str, step: str) -> None:
    """Only this subtask is, and everything else has landed."""
    subtask = state.subtasks[id_]
    assert subtask.failure is not None
    assert (subtask.failure.kind, subtask.counted, len(subtask.attempts)) == ("internal", 0, 1)
    assert subtask.failure.summary.startswith(f"an error of fleet while it {step}: KeyError: ")
    assert "Traceback (most recent call last)" in subtask.failure.evidence
    assert subtask.failure.evidence.endswith(HOW_TO_REPORT)
    [question] = state.open_questions()
    assert (question.about, question.aside, question.evidence) == (id_, True, subtask.failure.evidence)
    assert all(other.landed for other in state.subtasks.values() if other.id != id_)
    assert (state.ending, state.ending_why) == ("partial", f"set aside because of an error of fleet: {id_}")
    assert max(fleet.worker.paid.values()) == 1


async def test_a_commit_that_raises_once_is_made_and_the_work_is_not_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeLease, "commit", broken(FakeLease.commit, of="subtask='b'", times=1))
    fleet = FakeFleet(plan_of("a", "b", "c"))
    state = await fleet.run()
    assert (state.ending, state.attempts, tuple(state.incidents)) == ("landed", 3, ())
    assert fleet.worker.paid == {"a": 1, "b": 1, "c": 1}


async def test_a_commit_that_always_raises_sets_its_subtask_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeLease, "commit", broken(FakeLease.commit, of="subtask='b'"))
    fleet = FakeFleet(plan_of("a", "b", "c", failure_action="abort"))
    is_set_aside(fleet, await fleet.run(), "b", "carried out the attempt")


async def test_one_member_of_a_batch_that_can_not_be_merged_is_set_aside_and_lands_when_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = FakeIntegrator.merge
    monkeypatch.setattr(FakeIntegrator, "merge", broken(real, of="subtask='b'"))
    fleet = FakeFleet(plan_of("a", "b", "c"))
    state = await fleet.run()
    is_set_aside(fleet, state, "b", "landed the finished work")
    assert state.subtasks["b"].attempts[0].commit == fleet.git.pins["b", 1].commit

    monkeypatch.setattr(FakeIntegrator, "merge", real)
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
    assert (state.subtasks["b"].attempts[0].kept, state.subtasks["b"].attempts[0].commit) == (True, "c-b-1")


async def test_a_planner_that_raises_is_set_aside_and_what_it_planned_goes_on() -> None:
    def plans(brief: PlannerBrief) -> Revision:
        if brief.call > 1:
            raise KeyError("oops")
        return Revision(assessment="x", add=plan_of("a", "b needs a").subtasks)

    fleet = FakeFleet(planner=FakePlanner(plans))
    state = await fleet.run()
    assert (state.ending, state.commits, len(fleet.planner.briefs)) == ("partial", 2, 2)
    assert state.ending_why == "set aside because of an error of fleet: the planner"
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


async def test_a_result_branch_that_can_not_be_moved_is_not_tried_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    async def publish(_: object, run: str, *, tip: str) -> str | None:
        tries.append(run)
        raise KeyError(tip)

    monkeypatch.setattr(FakeIntegrator, "publish", publish)
    state = await FakeFleet(plan_of("a")).run()
    assert (state.ending, state.commits, len(tries)) == ("partial", 1, 2)
    assert "KeyError" in state.publish_problem


async def test_a_rule_that_raises_stops_no_other_and_the_run_ends_with_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def form_batches(state: RunState, now: float) -> Any:
        raise KeyError(state.run, now)

    rules = tuple(form_batches if rule.__name__ == "_form_batches" else rule for rule in policy.RULES)
    monkeypatch.setattr(bugs, "RULES", rules)
    fleet = FakeFleet(plan_of("a", "b"))
    state = await fleet.run()
    assert (state.ending, fleet.worker.paid) == ("failed", {"a": 1, "b": 1})
    assert "decided (form_batches): KeyError" in state.ending_why
    assert "`fleet resume" in state.ending_why
    [told] = [fact for fact in fleet.memory.facts if isinstance(fact, f.WarningNoted)]
    assert "in form_batches" in told.evidence


async def test_what_can_not_be_recorded_concerns_only_who_proposed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = evolve_fact

    def evolve(state: RunState | None, fact: f.Fact) -> RunState:
        if isinstance(fact, f.AttemptVerified) and fact.subtask == "b":
            raise KeyError("oops")
        return real(state, fact)

    monkeypatch.setattr("fleet.core.history.evolve.evolve", evolve)
    fleet = FakeFleet(plan_of("a", "b", "c"))
    is_set_aside(fleet, await fleet.run(), "b", "checked the finished work")


def test_the_exception_of_a_group_that_nobody_expected_decides_what_it_is() -> None:
    expected = EffectError(f.Failure(kind="infrastructure", summary="no room"))
    bug = KeyError("oops")
    assert unwrapped(ExceptionGroup("tasks", [expected, ExceptionGroup("more", [bug])])) is bug
    assert failure_of(ExceptionGroup("tasks", [expected]), "tried").summary == "no room"


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "no"), MemoryError(), RuntimeError("can't start new thread")])
def test_a_machine_without_processes_memory_or_threads_is_no_bug(error: Exception) -> None:
    assert failure_of(error, "tried").kind == "infrastructure"


async def test_advice_is_left_out_with_a_word_and_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    async def raises(*_: object) -> str:
        raise KeyError("oops")

    fleet = FakeFleet(plan_of("a", "b"))
    monkeypatch.setattr(fleet.worktrees, "diff", raises)
    state = await fleet.run()
    assert (state.ending, state.attempts) == ("landed", 2)
    told = [f"left out because of an error: what people should look at in {id_}: KeyError: 'oops'" for id_ in "ab"]
    assert sorted(state.warnings) == told
    traces = [fact.evidence for fact in fleet.memory.facts if isinstance(fact, f.WarningNoted)]
    assert all("in raises" in trace for trace in traces)
