"""The data of two pictures: every attempt on a time line, and the plan as a graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    status: Status
    needs: tuple[SubtaskId, ...]


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
    return [
        [PlanNode(id_, state.specs[id_].title, status_of(state, id_, now), state.specs[id_].depends_on) for id_ in wave]
        for wave in waves(state.plan)
    ]
