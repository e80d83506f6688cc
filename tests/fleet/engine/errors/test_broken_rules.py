"""A rule of policy that raises because of one subtask: this one is set aside, and the rule decides about the others."""

from collections.abc import Callable, Iterator

import pytest

from fleet.core.plans.revision import Revision
from fleet.core.policy import decide as policy
from fleet.core.policy.decide import Rule
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.status import for_revision
from fleet.engine.errors import bugs
from fleet.ports.agents import PlannerBrief, WorkerBrief
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import DONE, FakeFleet, FakePlanner, FakeWorker, finishes

FAILED = f.Failure(kind="other", summary="too hard")
Raises = Callable[[RunState], bool]


def breaking(monkeypatch: pytest.MonkeyPatch, name: str, raises: Raises) -> list[RunState]:
    """Have a rule raise in some states. Returns the states in which it did."""
    raised = list[RunState]()

    def broken(rule: Rule) -> Rule:
        def ask(state: RunState, now: float) -> Iterator[f.Fact]:
            for fact in rule(state, now):
                if raises(state):
                    raised.append(state)
                    raise KeyError("oops")
                yield fact

        ask.__name__ = rule.__name__
        return ask

    rules = tuple(broken(rule) if rule.__name__ == name else rule for rule in policy.RULES)
    monkeypatch.setattr(bugs, "RULES", rules)
    return raised


def restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugs, "RULES", policy.RULES)


def resumed(fleet: FakeFleet, *requests: f.RetryRequested) -> None:
    fleet.memory.appends.append([f.RunReopened(at=fleet.clock.now(), by="ada")])
    for request in requests:
        fleet.memory.ask(request)


def is_aside(state: RunState, *ids: str, rule: str) -> None:
    """These are, each with a question for which nobody waits, and everything else has landed."""
    questions = {question.about: question for question in state.open_questions()}
    assert set(questions) == set(ids)
    for question in questions.values():
        assert question.aside
        assert f"while it decided ({rule}): KeyError: 'oops'" in question.text
        assert "Traceback (most recent call last)" in question.evidence
    assert {id_ for id_, subtask in state.subtasks.items() if subtask.landed is None} == set(ids)
    assert state.ending == "partial"
    assert all(subtask.counted == 0 for subtask in state.subtasks.values() if subtask.id in ids)


async def test_a_finished_subtask_that_no_batch_can_take_is_set_aside_and_lands_when_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking(monkeypatch, "_form_batches", lambda state: "b" in state.landing.queue)
    fleet = FakeFleet(plan_of("a", "b", "c"))
    state = await fleet.run()
    is_aside(state, "b", rule="form_batches")
    assert fleet.worker.paid == {"a": 1, "b": 1, "c": 1}

    restore(monkeypatch)
    resumed(fleet, f.RetryRequested(at=fleet.clock.now(), subtask="b", guidance="", by="ada"))
    assert ((await fleet.run()).ending, fleet.worker.paid["b"]) == ("landed", 1)


async def test_a_subtask_that_can_not_be_started_is_set_aside_without_an_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking(monkeypatch, "_start_attempts", lambda state: "b" in state.subtasks.ids(state.subtasks.startable))
    state = await FakeFleet(plan_of("a", "b", "c", "d needs c")).run()
    is_aside(state, "b", rule="start_attempts")
    assert state.subtasks["b"].attempts == ()


async def test_a_failure_that_nothing_can_be_decided_about_keeps_no_other_from_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def undecided(state: RunState) -> bool:
        return any(subtask.failure and not subtask.question for subtask in state.subtasks.values() if subtask.id == "b")

    def works(brief: WorkerBrief) -> f.Report | f.Failure:
        return FAILED if brief.subtask.id == "b" or (brief.subtask.id == "c" and brief.attempt == 1) else DONE

    breaking(monkeypatch, "_choose_remedies", undecided)
    fleet = FakeFleet(plan_of("a", "b", "c", failure_action="retry"), worker=FakeWorker(works))
    state = await fleet.run()
    assert [question.about for question in state.open_questions() if question.aside] == ["b"]
    assert (state.subtasks["c"].landed is not None, len(state.subtasks["c"].attempts)) == (True, 2)


async def test_several_are_set_aside_together(monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, "_start_attempts", lambda state: bool({"b", "d"} & set(_startable(state))))
    fleet = FakeFleet(plan_of("a", "b", "c", "d", "e"))
    is_aside(await fleet.run(), "b", "d", rule="start_attempts")


def _startable(state: RunState) -> list[str]:
    return state.subtasks.ids(state.subtasks.startable)


async def test_a_rule_that_raises_once_is_told_and_sets_nothing_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [True]
    raised = breaking(monkeypatch, "_start_attempts", lambda _: bool(left and left.pop()))
    state = await FakeFleet(plan_of("a", "b")).run()
    assert (len(raised), state.ending, state.open_questions()) == (1, "landed", [])
    assert [text for text in state.warnings if "decided (start_attempts): KeyError" in text]


async def test_a_planner_does_not_take_up_what_a_rule_could_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def plans(brief: PlannerBrief) -> Revision:
        if not brief.state["subtasks"]:
            return Revision(assessment="begin", add=plan_of("a", "b").subtasks)
        return finishes(brief)

    breaking(monkeypatch, "_start_attempts", lambda state: "b" in _startable(state))
    state = await FakeFleet(planner=FakePlanner(plans)).run()
    assert [question.about for question in state.open_questions() if question.aside] == ["b"]
    assert for_revision(state).failed == frozenset()
