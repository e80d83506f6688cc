"""Journals of earlier versions load for ever, and mean what they meant."""

import json
from pathlib import Path
from typing import get_args

import pytest

from fleet.core.facts import facts as f
from fleet.core.facts.facts import FACT, Fact
from fleet.core.history.evolve import evolve
from fleet.core.policy.planner_view import planner_state
from fleet.core.state.state import RunState
from fleet.core.state.status import statuses
from fleet.read.run import status_view

JOURNALS = Path(__file__).parent / "journals"
T = 1_700_000_000.0
SINCE = {
    *("base_checked", "calls_held", "call_lost", "call_refused", "budget_ran_low", "plan_graded"),
    *("service_changed", "attempt_unchanged", "rollback_started", "plan_rejected", "work_lost"),
    "setup_ran",
    "rehearsal_noted",
    "gate_tried",
    "evidence_read",
    "plan_forecast",
    "result_scored",
    *("instruction_given", "instruction_read"),
    *("review_batched", "review_unbatched", "review_voted", "findings_settled"),
    *("node_connected", "node_lost", "node_add_requested", "node_drained", "node_undrained"),
}
"""Kinds that came later: no journal of the first version holds them."""
ALL_KINDS = {fact.model_fields["kind"].default for fact in get_args(Fact)}


def lines(name: str) -> list[str]:
    return (JOURNALS / name).read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def old() -> RunState:
    state: RunState | None = None
    for line in lines("v1.jsonl"):
        state = evolve(state, FACT.validate_json(line))
    assert state is not None
    return state


def test_the_first_version_holds_every_kind_of_fact_there_was() -> None:
    assert {json.loads(line)["kind"] for line in lines("v1.jsonl")} == ALL_KINDS - SINCE


def test_a_fact_that_was_written_reads_back_with_nothing_lost() -> None:
    for line in lines("v1.jsonl"):
        written = json.loads(line)
        again = json.loads(FACT.validate_json(line).model_dump_json())
        assert holds(again, written)


def holds(now: object, then: object) -> bool:
    """Whether all that was written is there, however much was added since."""
    if isinstance(now, dict) and isinstance(then, dict):
        return all(name in now and holds(now[name], value) for name, value in then.items())
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(holds, now, then))
    return now == then


def test_fields_that_came_later_have_a_default() -> None:
    """Optional fields may be missing from any journal; only what a fact is about must be there."""
    for line in lines("v1.jsonl"):
        fact = FACT.validate_json(line)
        bare = fact.model_dump_json(exclude_defaults=True, exclude={"kind"})
        assert FACT.validate_python({**json.loads(bare), "kind": fact.kind}) == fact


def test_a_rehearsal_that_had_faults_still_loads() -> None:
    began = next(line for line in lines("v1.jsonl") if json.loads(line)["kind"] == "run_started")
    rehearsed = json.dumps(json.loads(began) | {"rehearsal": {"faults": 0.4, "seed": 3}})
    noted = '{"kind": "rehearsal_noted", "at": 1, "what": "fault", "subtask": "api", "text": "check: hangs"}'
    state = evolve(None, FACT.validate_json(rehearsed))
    state = evolve(state, FACT.validate_json(noted))
    assert state.rehearsal is not None
    assert [(note.what, note.text) for note in state.rehearsed] == [("fault", "check: hangs")]


def test_the_old_run_is_where_it_was(old: RunState) -> None:
    assert statuses(old, T + 2010) == {
        "schema": "merged",
        "api": "split",
        "docs": "dropped",
        "extra": "dropped",
        "read": "ready",
        "write": "dropped",
    }
    assert (old.tip, old.published, old.commits, old.attempts, old.peak) == ("1" * 40, "1" * 40, 1, 6, 2)
    assert (old.epoch, old.ending, old.paused, old.draining, old.cancelled) == (3, None, False, False, False)
    assert old.seconds(T + 2010) == (25 - 1) + (1019 - 1000) + 10
    assert old.warnings == (
        "the checkout is dirty; the run starts from HEAD",
        "the result branch could not be moved: fleet/shop-1a2b is checked out",
    )


def test_an_old_run_can_be_looked_at_and_gone_on_with(old: RunState) -> None:
    assert status_view(old, T + 2010, alive=True).state == "running"
    assert planner_state(old, T + 2010)["plan_version"] == 3


@pytest.fixture(scope="module")
def reviewed() -> list[RunState]:
    """The states of a run whose verdicts on the plan do not name what they are about."""
    state: RunState | None = None
    states = list[RunState]()
    for line in lines("reviews.jsonl"):
        state = evolve(state, FACT.validate_json(line))
        states.append(state)
    return states


def test_an_old_verdict_without_subtasks_is_about_all_that_waited_then(reviewed: list[RunState]) -> None:
    verdicts = [(review.by, review.rejected, review.subtasks) for review in reviewed[-1].reviews]
    assert verdicts == [
        ("ada", True, ("schema", "api", "docs", "ops")),
        ("ada", False, ("schema", "docs")),
        ("bob", False, ("api", "ops")),  # schema was under way and docs was approved
    ]
    assert set(reviewed[-1].cleared) == {"schema", "api", "docs", "ops"}


def test_what_an_old_approval_left_out_waits_for_a_person(reviewed: list[RunState]) -> None:
    after_a_part = reviewed[5]
    assert {id_ for id_, spec in after_a_part.shelved.items() if spec == after_a_part.spec(id_)} == {
        *("schema", "api", "docs"),  # as they were rejected
        "ops",  # as it was revised and then left out
    }
    assert set(after_a_part.cleared) == {"schema", "docs"}


def test_older_names_in_facts_are_read_as_the_names_of_today() -> None:
    lost = FACT.validate_json('{"kind": "work_lost", "at": 1, "tip": "a", "again": ["one"], "anew": ["two"]}')
    assert isinstance(lost, f.WorkLost)
    assert (lost.reland, lost.redo) == (("one",), ("two",))
    about = '"criterion": "fine", "looks_for": "faults", "vote": 1, "model": "m"'
    where = '"at": 1, "subtask": "one", "number": 1'
    voted = FACT.validate_json(f'{{"kind": "review_voted", {where}, "votes": [{{{about}}}]}}')
    assert isinstance(voted, f.ReviewVoted)
    assert voted.votes[0].focus == "faults"
    asked = f'"asked": [{{"id": "fleet-1", {about}}}], "cost": {{}}'
    batched = FACT.validate_json(f'{{"kind": "review_batched", {where}, {asked}}}')
    assert isinstance(batched, f.ReviewBatched)
    assert batched.asked[0].focus == "faults"
    finding = '{"file": "a.py", "line": 1, "problem": "wrong"}'
    settled = f'{{"subtask": "one", "attempt": 1, "finding": {finding}, "result": "mended"}}'
    passed = FACT.validate_json(f'{{"kind": "findings_settled", {where}, "settled": [{settled}]}}')
    assert isinstance(passed, f.FindingsSettled)
    assert passed.settled[0].result == "fixed"
