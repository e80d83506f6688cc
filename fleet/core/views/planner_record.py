"""What a planner reads of a run that no longer changes: what was planned and what landed, in order.

New entries come at the end, and none is rewritten: whatever changed is said again, later. So the prompt of the next
call begins as the last one did, and the models' service need not read it again. What moves is in the `<state>`.

In a long run the oldest entries are left out, many at once, so that the next calls begin alike again. What was planned
stays in it while it is open.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Subtask
from fleet.core.state.areas import Area, seen, seen_by
from fleet.core.state.facts import FailureKind, Report
from fleet.core.state.state import RunState
from fleet.core.state.status import Status, status_of
from fleet.core.state.subtasks import SubtaskState

GOAL = 1_000  # characters of a goal
RESULT = 600  # characters of what a worker reported
BRIEF = 200  # of it in the list that a search finds
RECOMMENDATION, RECOMMENDATIONS = 300, 5  # characters of each, and how many
PAGE = 120_000  # characters: the older ones of more than two pages are left out, a page at once
OLD = 60  # entries about subtasks that were planned before those, and were open when these were left out
FOUND = 50  # subtasks that a search finds
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
    left_out: NotRequired[int]
    """How many earlier entries are not in the record."""


FailureReport = TypedDict("FailureReport", {"attempt": int, "class": FailureKind, "summary": str, "evidence": str})


class SubtaskReport(TypedDict):
    """All that is known of one subtask: its description, its last report, and each failure with its evidence."""

    id: SubtaskId
    planned: dict[str, object]
    report: dict[str, object] | None
    failures: list[FailureReport]


class Found(TypedDict):
    """A subtask that a search found."""

    id: SubtaskId
    title: str
    status: Status
    touches: list[str]
    result: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry before its texts are put together."""

    at: float
    id: SubtaskId
    spec: Subtask | None
    """None: it landed."""


def planner_record(state: RunState, area: Area = None) -> list[RecordEntry]:
    """The record of the run, or of an area."""
    visible = seen_by(state, area)
    entries = sorted([*_planned(state, visible), *_landed(state, visible)], key=lambda entry: entry.at)
    left_out = _first_shown(_length(state, entry) for entry in entries)
    texts = [_text(state, entry) for entry in entries[left_out:]]
    old = [_text(state, entry) for entry in _still_open(state, entries[:left_out])]
    return [RecordEntry(left_out=left_out), *old, *texts] if left_out else texts


def _first_shown(lengths: Iterable[int]) -> int:
    """Where the page before the last one begins."""
    starts, length = [0, 0], 0
    for at, more in enumerate(lengths):
        if length > PAGE:
            starts, length = [starts[1], at], 0
        length += more
    return starts[0]


def _length(state: RunState, entry: _Entry) -> int:
    """About how long its text is, without making it: in a long run, hardly any of them are shown."""
    if (spec := entry.spec) is not None:
        checks = sum(len(criterion.shown) for criterion in spec.acceptance)
        return len(spec.id) + len(spec.title) + min(len(spec.goal), GOAL) + sum(map(len, spec.touches)) + checks
    report = _report_of(state.subtasks[entry.id])
    if report is None:
        return len(entry.id)
    advice = sum(min(len(each), RECOMMENDATION) for each in _advice(report))
    return len(entry.id) + min(len(report.summary), RESULT) + advice


def find_subtasks(state: RunState, words: str, area: Area = None) -> list[Found]:
    """The latest subtasks a planner sees whose id, title, paths or result hold all of these words."""
    wanted = words.lower().split()
    found: list[Found] = []
    for id_ in reversed(state.subtasks.in_plan_order(seen(state, area))):
        spec, subtask = state.spec(id_), state.subtasks[id_]
        report = _report_of(subtask)
        result = report.summary if report is not None else ""
        text = "\n".join((id_, spec.title, *spec.touches, result)).lower()
        if len(found) < FOUND and all(word in text for word in wanted):
            status = status_of(state, id_, state.last_at)
            found.append(
                Found(id=id_, title=spec.title, status=status, touches=list(spec.touches), result=result[:BRIEF])
            )
    return found


def subtask_report(state: RunState, id_: SubtaskId, area: Area = None) -> SubtaskReport | None:
    """What a planner may ask about a subtask; None if there is none that it sees."""
    if id_ not in seen_by(state, area):
        return None
    subtask = state.subtasks[id_]
    report = _report_of(subtask)
    planned = state.spec(id_).model_dump(mode="json", exclude_defaults=True)
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
    reported = report.model_dump(mode="json") if report is not None else None
    return SubtaskReport(id=id_, planned=planned, report=reported, failures=failures)


def _planned(state: RunState, visible: frozenset[SubtaskId]) -> Iterator[_Entry]:
    """Each subtask when it was planned, and again when its plan changed."""
    for version in state.versions:
        for spec in version.changed:
            if spec.id in visible:
                yield _Entry(version.at, spec.id, spec)


def _landed(state: RunState, visible: frozenset[SubtaskId]) -> Iterator[_Entry]:
    for id_, subtask in state.subtasks.items():
        last = subtask.last
        if id_ in visible and subtask.landed is not None and last is not None and last.ended_at is not None:
            yield _Entry(last.ended_at, id_, None)


def _still_open(state: RunState, left_out: Sequence[_Entry]) -> Iterator[_Entry]:
    """The description of each subtask that was open when its entry was left out, or the latest of them."""
    kept: dict[SubtaskId, _Entry] = {}
    for entry in left_out:
        kept.pop(entry.id, None)
        if entry.spec is not None:
            kept[entry.id] = entry
    given_up = (id_ for id_ in kept if state.subtasks[id_].closed and state.subtasks[id_].landed is None)
    for id_ in list(given_up):
        del kept[id_]
    yield from list(kept.values())[-OLD:]


def _text(state: RunState, entry: _Entry) -> RecordEntry:
    return _spec(entry.spec) if entry.spec is not None else _result(entry.id, state.subtasks[entry.id])


def _spec(spec: Subtask) -> RecordEntry:
    return RecordEntry(
        planned=spec.id,
        title=spec.title,
        goal=spec.goal[:GOAL],
        touches=list(spec.touches),
        acceptance=[criterion.shown for criterion in spec.acceptance],
    )


def _report_of(subtask: SubtaskState) -> Report | None:
    return subtask.last.report if subtask.last is not None else None


def _result(id_: SubtaskId, subtask: SubtaskState) -> RecordEntry:
    report = _report_of(subtask)
    entry = RecordEntry(landed=id_, result=report.summary[:RESULT] if report else "")
    if report is not None and (advice := _advice(report)):
        entry["recommendations"] = [each[:RECOMMENDATION] for each in advice]
    return entry


def _advice(report: Report) -> tuple[str, ...]:
    return (*report.recommendations, *report.needs, *report.discovered)[:RECOMMENDATIONS]
