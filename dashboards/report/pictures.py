"""The data of two pictures: every attempt on a time line, and the plan as a graph."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from dashboards.report.blocks import Graph, Node
from dashboards.text.formats import counted
from fleet.core.base.ids import SubtaskId
from fleet.core.plans.dependencies import waves
from fleet.core.state.state import RunState
from fleet.core.state.status import Status, status_of


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt on the time line."""

    number: int
    from_s: float
    to_s: float | None
    landed: bool | None
    """Null while it is under way, and if it was stopped."""


@dataclass(frozen=True, slots=True)
class SubtaskSpans:
    """All attempts at a subtask."""

    id: SubtaskId
    attempts: tuple[AttemptSpan, ...]


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A subtask in the graph of the plan."""

    id: SubtaskId
    title: str
    needs: tuple[SubtaskId, ...]
    area: SubtaskId | None
    """The area whose planner made it."""
    status: Status


LABELLED = 60  # nodes with labels and lines; of a larger plan, areas stand for their subtasks
DRAWN = 1_000  # nodes that are drawn at all; of a larger plan the graph shows how far each wave is
ROWS = 40  # for the waves of such a plan
TONES: dict[Status, str] = {
    "merged": "good",
    "failed": "bad",
    "blocked": "bad",
    "escalated": "open",
    "running": "busy",
    "verifying": "busy",
    "landing": "busy",
}
"""How the status of a subtask looks in the graph; all others are `rest`."""


def attempt_spans(state: RunState, seconds_at: Callable[[float], float]) -> list[SubtaskSpans]:
    """In the order in which work on them began. Times are seconds at work."""
    spans = [
        SubtaskSpans(
            subtask.id,
            tuple(
                AttemptSpan(
                    attempt.number,
                    seconds_at(attempt.started_at),
                    seconds_at(attempt.ended_at) if attempt.ended_at is not None else None,
                    True if attempt.landed else False if attempt.failure is not None else None,
                )
                for attempt in subtask.attempts
            ),
        )
        for subtask in state.subtasks.values()
        if subtask.attempts
    ]
    return sorted(spans, key=lambda each: each.attempts[0].from_s)


def plan_waves(state: RunState, now: float) -> Sequence[Sequence[PlanNode]]:
    """The subtasks in waves: each needs only those of earlier ones."""
    return [[PlanNode(*rest, status_of(state, rest[0], now)) for rest in wave] for wave in wave_parts(state)]


WaveParts = Sequence[Sequence[tuple[SubtaskId, str, tuple[SubtaskId, ...], SubtaskId | None]]]


def wave_parts(state: RunState) -> WaveParts:
    """The nodes without their status: they change with the plan only."""
    return [
        [(id_, state.specs[id_].title, state.specs[id_].depends_on, state.subtasks[id_].area) for id_ in wave]
        for wave in waves(state.plan)
    ]


def _no_link(_: SubtaskId) -> str:
    return ""


def plan_graph(plan: Sequence[Sequence[PlanNode]], link: Callable[[SubtaskId], str] = _no_link) -> Graph:
    """The waves of a plan as a picture that stays readable, and light, whatever their size."""
    total = sum(map(len, plan))
    summary = _summary(total, len(plan))
    notes: dict[SubtaskId, str] = {}
    if total > LABELLED and any(node.area is not None for node in chain(*plan)):
        notes = _areas(plan)
        plan = [outer for wave in plan if (outer := [node for node in wave if node.area is None])]
        summary += f" {counted(len(notes), 'area')} with how many of their subtasks landed."
    if sum(map(len, plan)) > DRAWN:
        counts = [Counter(TONES.get(node.status, "rest") for node in wave) for wave in plan]
        return Graph("The plan", summary, (), _rows(counts))
    columns = [
        [
            Node(
                node.id, TONES.get(node.status, "rest"), node.needs, node.status, notes.get(node.id, ""), link(node.id)
            )
            for node in wave
        ]
        for wave in plan
    ]
    return Graph("The plan", summary, columns)


def _areas(plan: Sequence[Sequence[PlanNode]]) -> dict[SubtaskId, str]:
    """For each area of the run's own planner, how many of all subtasks below it landed."""
    area = {node.id: node.area for node in chain(*plan)}
    done, total = Counter[SubtaskId](), Counter[SubtaskId]()
    for node in chain(*plan):
        top = node.area
        while top is not None and area.get(top) is not None:
            top = area[top]
        if top is not None:
            total[top] += 1
            done[top] += node.status == "merged"
    return {id_: f"{done[id_]}/{number}" for id_, number in total.items()}


def wave_graph(counts: Sequence[Counter[str]]) -> Graph:
    """The same of a plan that is too large to be drawn, from how many subtasks of each wave have each tone."""
    return Graph("The plan", _summary(sum(each.total() for each in counts), len(counts)), (), _rows(counts))


def _summary(subtasks: int, number: int) -> str:
    return f"{counted(subtasks, 'subtask')} in {counted(number, 'wave')}: each needs only those of earlier waves."


def _rows(counts: Sequence[Counter[str]]) -> list[tuple[str, Counter[str]]]:
    """One for each wave, or for a few where there are many."""
    each = -(-len(counts) // ROWS)
    ends = ((first, min(first + each, len(counts))) for first in range(0, len(counts), each))
    return [
        (
            f"wave {first + 1}" if last == first + 1 else f"waves {first + 1} to {last}",
            sum(counts[first:last], Counter()),
        )
        for first, last in ends
    ]
