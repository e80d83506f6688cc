"""What a planner reads of a run that no longer changes: what was planned and what landed, in order.

New entries come at the end, and none is rewritten: whatever changed is said again, later. So the prompt of the next
call begins as the last one did, and the models' service need not read it again. What moves is in the `<state>`.
"""

from collections.abc import Iterator
from typing import NotRequired, TypedDict

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Subtask
from fleet.core.state.areas import Area, seen_by
from fleet.core.state.facts import FailureKind
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import SubtaskState

GOAL = 1_000  # characters of a goal
RESULT = 600  # characters of what a worker reported
RECOMMENDATION, RECOMMENDATIONS = 300, 5  # characters of each, and how many
EVIDENCE = 3_000  # characters of the evidence of one failure, where a planner asks for it


class RecordEntry(TypedDict):
    """One thing that happened: a subtask was planned (or planned again), or landed."""

    planned: NotRequired[SubtaskId]
    landed: NotRequired[SubtaskId]
    title: NotRequired[str]
    goal: NotRequired[str]
    touches: NotRequired[list[str]]
    acceptance: NotRequired[list[str]]
    result: NotRequired[str]
    recommendations: NotRequired[list[str]]


FailureReport = TypedDict("FailureReport", {"attempt": int, "class": FailureKind, "summary": str, "evidence": str})


class SubtaskReport(TypedDict):
    """All that is known of one subtask: its last report, and each failure with its evidence."""

    id: SubtaskId
    report: dict[str, object] | None
    failures: list[FailureReport]


def planner_record(state: RunState, area: Area = None) -> list[RecordEntry]:
    """The record of the run, or of an area."""
    seen = seen_by(state, area)
    entries = [*_planned(state, seen), *_landed(state, seen)]
    return [entry for _, entry in sorted(entries, key=lambda each: each[0])]


def subtask_report(state: RunState, id_: SubtaskId, area: Area = None) -> SubtaskReport | None:
    """What a planner may ask about a subtask; None if there is none that it sees."""
    if id_ not in seen_by(state, area):
        return None
    subtask = state.subtasks[id_]
    report = subtask.last.report if subtask.last is not None else None
    failures: list[FailureReport] = [
        {
            "attempt": attempt.number,
            "class": attempt.failure.kind,
            "summary": attempt.failure.summary,
            "evidence": attempt.failure.evidence[-EVIDENCE:],
        }
        for attempt in subtask.attempts
        if attempt.failure is not None
    ]
    return SubtaskReport(id=id_, report=report.model_dump(mode="json") if report else None, failures=failures)


def _planned(state: RunState, seen: frozenset[SubtaskId] | set[SubtaskId]) -> Iterator[tuple[float, RecordEntry]]:
    """Each subtask when it was planned, and again when its plan changed."""
    known: dict[SubtaskId, Subtask] = {}
    for version in state.versions:
        for spec in version.plan.subtasks:
            if spec.id in seen and known.get(spec.id) != spec:
                yield version.at, _spec(spec)
            known[spec.id] = spec


def _spec(spec: Subtask) -> RecordEntry:
    return RecordEntry(
        planned=spec.id,
        title=spec.title,
        goal=spec.goal[:GOAL],
        touches=list(spec.touches),
        acceptance=[criterion.run or criterion.criterion for criterion in spec.acceptance],
    )


def _landed(state: RunState, seen: frozenset[SubtaskId] | set[SubtaskId]) -> Iterator[tuple[float, RecordEntry]]:
    for id_, subtask in state.subtasks.items():
        last = subtask.last
        if id_ in seen and subtask.landed is not None and last is not None and last.ended_at is not None:
            yield last.ended_at, _result(id_, subtask)


def _result(id_: SubtaskId, subtask: SubtaskState) -> RecordEntry:
    report = subtask.last.report if subtask.last is not None else None
    entry = RecordEntry(landed=id_, result=report.summary[:RESULT] if report else "")
    advice = [*report.recommendations, *report.needs, *report.discovered] if report else []
    if advice:
        entry["recommendations"] = [each[:RECOMMENDATION] for each in advice[:RECOMMENDATIONS]]
    return entry
