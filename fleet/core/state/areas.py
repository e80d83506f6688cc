"""Areas: subtasks that a planner of their own carries out, with a state and a share of the budget of their own.

An area is a subtask whose worker is `planner`. While an attempt at it is under way, its planner is in charge of the
subtasks it made; otherwise whoever is in charge of the area is. Queries only; `evolve.py` changes what is true.
"""

from collections.abc import Iterator

from fleet.core.ids import SubtaskId
from fleet.core.plan import PLANNER
from fleet.core.state import Planning, Question, RunState, SubtaskState

Area = SubtaskId | None
"""Whose planner is meant; None is the run's own."""


def is_active(state: RunState, area: SubtaskId) -> bool:
    """Whether its planner is in charge: its attempt is under way, and it has not finished."""
    current = state.subtasks[area].current
    return current is not None and current.worker == PLANNER and current.commit is None


def active(state: RunState) -> tuple[SubtaskId, ...]:
    return tuple(area for area in state.areas if is_active(state, area))


def planning_of(state: RunState, area: Area) -> Planning:
    return state.planning if area is None else state.areas[area]


def conversations(state: RunState) -> tuple[Area, ...]:
    """The run's own planner, and those of the areas that are being worked on."""
    return (None, *active(state))


def in_charge(state: RunState, id_: SubtaskId) -> Area:
    """Whose planner decides about a subtask."""
    area = state.subtasks[id_].area
    while area is not None and not is_active(state, area):
        area = state.subtasks[area].area
    return area


def seen_by(state: RunState, area: Area) -> frozenset[SubtaskId]:
    """What a planner is shown and may change: its own subtasks, and what areas that came to nothing left open."""
    if not state.areas:
        return frozenset(state.subtasks)
    return frozenset(
        id_
        for id_, subtask in state.subtasks.items()
        if (subtask.area == area or not subtask.closed) and in_charge(state, id_) == area
    )


def questions_in(state: RunState, area: SubtaskId) -> list[Question]:
    """What a human was asked of the subtasks of an area, and has not answered."""
    seen = seen_by(state, area)
    return [q for q in state.open_questions() if q.area == area or q.about in seen]


def inside(state: RunState, area: SubtaskId) -> Iterator[SubtaskState]:
    """The subtasks of an area, and of the areas in it."""
    for subtask in state.subtasks.values():
        above = subtask.area
        while above is not None and above != area:
            above = state.subtasks[above].area
        if above == area:
            yield subtask


def depth(state: RunState, area: Area) -> int:
    """How many areas deep a planner is; the run's own is 0."""
    deep = 0
    while area is not None:
        deep, area = deep + 1, state.subtasks[area].area
    return deep


def waits_for_area(state: RunState, subtask: SubtaskState) -> bool:
    """Whether it may not begin because its area is not being worked on: nobody would answer for it."""
    area = subtask.area
    return area is not None and not is_active(state, area) and not state.subtasks[area].closed


def spent(state: RunState, area: SubtaskId) -> float:
    """Dollars that the current attempt at an area has cost: its planner's calls and the work it gave out."""
    current = state.subtasks[area].current
    if current is None:
        return 0.0
    work = (
        attempt.spend.priced_dollars
        for subtask in inside(state, area)
        for attempt in subtask.attempts
        if attempt.started_at >= current.started_at
    )
    return current.spend.priced_dollars + sum(work)


def allowance(state: RunState, area: SubtaskId) -> float | None:
    """What an area that begins now may cost: what its plan estimates, or an even share of what is left."""
    estimated = state.spec(area).estimate.dollars
    if state.policy.budget_dollars is None:
        return estimated
    left = max(0.0, state.policy.budget_dollars - state.spent.priced_dollars)
    if estimated is not None:
        return min(estimated, left)
    waiting = sum(spec.worker == PLANNER and not state.subtasks[spec.id].closed for spec in state.plan.subtasks)
    return left / (waiting + 1)
