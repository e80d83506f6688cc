"""What a simulated planner submits, by the state it is shown."""

from typing import Any

import anthropic
import pytest

from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import Revision, SubtaskStatuses, revise_plan
from tests.agents.simulated.conftest import PLANNER_TOOLS, Connect, answered, calls, planner_messages


def subtask(id_: str, **more: Any) -> dict[str, Any]:
    check = {"criterion": "It works", "run": f"test -f {id_}.py"}
    return {"id": id_, "title": f"Write {id_}", "goal": "Write it.", "acceptance": [check], **more}


def seen(id_: str, status: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "title": f"Write {id_}", "status": status, "attempts": 1, "failures": [], **more}


def failure(kind: str = "check", evidence: str = "expected 4, got 5") -> dict[str, Any]:
    return {"attempt": 1, "class": kind, "strategy": "first", "evidence": evidence}


SCRIPT: dict[str, Any] = {
    "label": "a test",
    "planner": {
        "explore": [{"tool": "list_files"}, {"tool": "no_such_tool"}],
        "steps": [
            {"when": {"start": True}, "revision": {"assessment": "First two.", "add": [subtask("a"), subtask("b")]}},
            {"when": {"merged": ["a"]}, "revision": {"assessment": "Now the third.", "add": [subtask("c")]}},
            {
                "when": {"failed": "b", "kind": "too_complex"},
                "revision": {
                    "assessment": "Too large.",
                    "split": [{"id": "b", "why": "large", "into": [subtask("b1"), subtask("b2")]}],
                },
            },
            {
                "when": {"failed": "c"},
                "revision": {"assessment": "A human knows.", "ask": [{"about": "c", "question": "Which?"}]},
            },
            {
                "when": {"answered": "c"},
                "revision": {"assessment": "Known now.", "retry": [{"id": "c", "guidance": "Take {answer} for {id}"}]},
            },
        ],
        "synthesis": "Both are there.",
    },
}


async def test_the_planner_explores_with_what_is_offered_and_then_plans(connect: Connect) -> None:
    async with connect(SCRIPT) as client:
        messages = planner_messages({"run": "r", "subtasks": []})
        first = await client.ask(messages, PLANNER_TOOLS)
        second = await client.ask(answered(messages, first, "a.py"), PLANNER_TOOLS)
    assert [call.name for call in calls(first)] == ["list_files"]
    revision = Revision.model_validate(calls(second)[0].input)
    plan = revise_plan(Plan(goal="Build it"), revision, SubtaskStatuses())
    assert isinstance(plan, Plan)
    assert plan.ids == ("a", "b")


async def test_a_plan_can_be_streamed(connect: Connect) -> None:
    async with connect(SCRIPT) as client:
        tools = [PLANNER_TOOLS[1]]
        streamed = await client.stream(planner_messages({}), tools)
        whole = await client.ask(planner_messages({}), tools)
    assert calls(streamed)[0].input == calls(whole)[0].input


async def test_steps_that_fit_together_make_one_revision(connect: Connect) -> None:
    state = {"subtasks": [seen("a", "merged"), seen("b", "failed", failures=[failure("too_complex")])]}
    async with connect(SCRIPT) as client:
        revision = Revision.model_validate(await client.plan(state))
    assert [new.id for new in revision.add] == ["c"]
    assert [part.id for part in revision.split[0].into] == ["b1", "b2"]
    assert revision.assessment == "Now the third. Too large."


async def test_a_step_fires_once_because_the_state_shows_that_it_did(connect: Connect) -> None:
    state = {"subtasks": [seen("a", "merged"), seen("b", "running"), seen("c", "waiting")]}
    async with connect(SCRIPT) as client:
        revision = Revision.model_validate(await client.plan(state))
    assert not revision.changes_plan
    assert "1 running" in revision.assessment


async def test_an_unscripted_failure_is_retried_with_its_evidence(connect: Connect) -> None:
    state = {"subtasks": [seen("a", "failed", failures=[failure()]), seen("b", "running")]}
    async with connect(SCRIPT) as client:
        revision = Revision.model_validate(await client.plan(state))
    assert revision.retry[0].id == "a"
    assert "expected 4, got 5" in revision.retry[0].guidance


async def test_a_blocked_subtask_becomes_a_question(connect: Connect) -> None:
    blocked = seen("b", "blocked", failures=[failure("ambiguous", "comma or tab?")])
    async with connect(SCRIPT) as client:
        revision = Revision.model_validate(await client.plan({"subtasks": [seen("a", "running"), blocked]}))
    assert revision.ask[0].about == "b"
    assert "comma or tab?" in revision.ask[0].question


@pytest.mark.parametrize("status", ["blocked", "escalated"])
async def test_a_question_is_asked_once_and_its_answer_guides_the_next_attempt(connect: Connect, status: str) -> None:
    others = [seen("a", "merged"), seen("b", "running")]
    question = {"id": "q1", "about": "c", "question": "Which?", "answer": None}
    async with connect(SCRIPT) as client:
        asked = Revision.model_validate(await client.plan({"subtasks": [*others, seen("c", "blocked")]}))
        open_ = {"subtasks": [*others, seen("c", status)], "questions": [question]}
        waiting = Revision.model_validate(await client.plan(open_))
        closed = {"subtasks": [*others, seen("c", status)], "questions": [question | {"answer": 'the "tab"'}]}
        known = Revision.model_validate(await client.plan(closed))
    assert asked.ask[0].question == "Which?"
    assert not waiting.ask
    assert not waiting.changes_plan
    assert known.retry[0].guidance == 'Take the "tab" for c'


async def test_answers_without_a_subject_are_taken_too(connect: Connect) -> None:
    state = {"subtasks": [seen("c", "blocked")], "questions": [{"id": "q1", "answer": "tab"}]}
    async with connect(SCRIPT) as client:
        revision = Revision.model_validate(await client.plan(state))
    assert revision.retry[0].guidance == "Take tab for c"


async def test_when_all_has_landed_it_says_so(connect: Connect) -> None:
    state = {"subtasks": [seen("a", "merged"), seen("b", "dropped"), seen("c", "merged")]}
    async with connect(SCRIPT) as client:
        revision = Revision.model_validate(await client.plan(state))
    assert revision.finished
    assert revision.synthesis == "Both are there."


async def test_subtasks_that_the_state_only_counts_are_planned_and_closed(connect: Connect) -> None:
    closed = {"count": 9_900, "summary": [{"area": "src", "merged": 9_900, "result": ""}]}
    async with connect(SCRIPT) as client:
        assert Revision.model_validate(await client.plan({"subtasks": [], "closed": closed})).finished
        revision = Revision.model_validate(await client.plan({"subtasks": [seen("d", "running")], "closed": closed}))
    assert not revision.finished
    assert revision.add == ()


async def test_the_planners_first_calls_can_meet_errors(connect: Connect) -> None:
    script = {"label": "x", "planner": {"faults": [{"do": "http", "status": 500}, {"do": "http", "status": 429}]}}
    statuses = []
    async with connect(script) as client:
        for _ in range(2):
            with pytest.raises(anthropic.APIStatusError) as caught:
                await client.plan({"run": "r", "subtasks": []})
            statuses.append(caught.value.status_code)
        assert await client.plan({"run": "r", "subtasks": []})
    assert statuses == [500, 429]


async def test_the_planners_calls_can_meet_errors_once_something_is_planned(connect: Connect) -> None:
    script = {**SCRIPT, "planner": {**SCRIPT["planner"], "once_planned": {"do": "http", "status": 500, "times": 2}}}
    planned = {"run": "r", "subtasks": [seen("a", "failed", failures=[failure()])]}
    async with connect(script) as client:
        assert await client.plan({"run": "r", "subtasks": []})
        for _ in range(2):
            with pytest.raises(anthropic.InternalServerError):
                await client.plan(planned)
        assert await client.plan(planned)


async def test_an_area_has_steps_of_its_own_and_a_synthesis_that_names_what_it_did(connect: Connect) -> None:
    for_areas = {
        "when": {"area": "au*", "start": True},
        "revision": {"assessment": "In parts.", "add": [subtask("tokens")]},
    }
    script = {
        **SCRIPT,
        "planner": {**SCRIPT["planner"], "explore": [], "steps": [*SCRIPT["planner"]["steps"], for_areas]},
    }
    async with connect(script) as client:
        first = Revision.model_validate(await client.plan({"run": "r", "area": "auth", "subtasks": []}))
        other = Revision.model_validate(await client.plan({"run": "r", "area": "ui", "subtasks": []}))
        whole = Revision.model_validate(await client.plan({"run": "r", "subtasks": []}))
        done = Revision.model_validate(await client.plan({"area": "auth", "subtasks": [seen("tokens", "merged")]}))
    assert [new.id for new in first.add] == ["tokens"]
    assert other.add == ()
    assert [new.id for new in whole.add] == ["a", "b"]
    assert (done.finished, done.synthesis) == (True, "auth: Write tokens.")
