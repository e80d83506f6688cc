"""Areas: subtasks with a planner, a state and a share of the budget of their own. Queries only.

An area is a subtask whose worker is `planner`. While an attempt at it is under way, its planner is in charge of the
subtasks it made; otherwise the planner in charge of the area is.
"""

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import Planning, Question, RunState
from fleet.core.state.subtasks import Mark, Set, SubtaskState

Area = SubtaskId | None
"""The area of a planner; None means the run's own planner."""


def is_active(state: RunState, area: SubtaskId) -> bool:
    """Whether the area's planner is in charge: its attempt is under way, and it has not finished."""
    current = state.subtasks[area].current
    return current is not None and current.worker == PLANNER and current.commit is None


def active_areas(state: RunState) -> tuple[SubtaskId, ...]:
    return tuple(state.subtasks.in_plan_order(state.subtasks.marked(Mark.PLANNING)))


def planning_of(state: RunState, area: Area) -> Planning:
    return state.planning if area is None else state.areas[area]


def conversations(state: RunState) -> tuple[Area, ...]:
    """The run's own planner, and the planners of active areas."""
    return (None, *active_areas(state))


def in_charge(state: RunState, id_: SubtaskId) -> Area:
    """The area whose planner decides about a subtask."""
    area = state.subtasks[id_].area
    while area is not None and not is_active(state, area):
        area = state.subtasks[area].area
    return area


def seen_by(state: RunState, area: Area) -> frozenset[SubtaskId]:
    """The subtasks that a planner sees and may change: its own, and the open ones of areas that failed."""
    return frozenset(state.subtasks.ids(seen(state, area)))


def seen(state: RunState, area: Area) -> Set:
    """The same as a set."""
    subtasks = state.subtasks
    if not state.areas:
        return subtasks.all
    if area is not None and not is_active(state, area):
        return 0
    own = subtasks.members(area)
    orphans = subtasks.open & ~(subtasks.members(None) | subtasks.in_active_areas | own)
    return own | subtasks.set_of([id_ for id_ in subtasks.first(orphans) if in_charge(state, id_) == area])


def questions_in(state: RunState, area: SubtaskId) -> list[Question]:
    """The open questions about an area's subtasks or from its planner."""
    seen = seen_by(state, area)
    return [q for q in state.open_questions() if q.area == area or q.about in seen]


def inside(state: RunState, area: SubtaskId) -> Set:
    """The subtasks of an area and of the areas in it."""
    subtasks = state.subtasks
    found, areas = 0, [area]
    while areas:
        members = subtasks.members(areas.pop())
        found |= members
        areas += [nested for nested in state.areas if members >> subtasks.plan.bits[nested] & 1]
    return found


def area_depth(state: RunState, area: Area) -> int:
    """The number of areas that a planner's area is nested in, itself included; 0 for the run's own planner."""
    levels = 0
    while area is not None:
        levels, area = levels + 1, state.subtasks[area].area
    return levels


def waits_for_area(state: RunState, subtask: SubtaskState) -> bool:
    """Whether a subtask may not start because its area is not active, so that no planner would be in charge of it."""
    area = subtask.area
    return area is not None and not is_active(state, area) and not state.subtasks[area].closed


def area_spend(state: RunState, area: SubtaskId) -> float:
    """Dollars that the current attempt at an area has cost: its planner's calls, and the attempts at its subtasks."""
    current = state.subtasks[area].current
    return current.spend.priced_dollars + state.areas[area].spent if current is not None else 0.0


def allowance(state: RunState, area: SubtaskId) -> float | None:
    """What an area that starts now may cost: its estimate, or an even share of the rest of what it is a part of."""
    estimated, outer = state.spec(area).estimate.dollars, state.subtasks[area].area
    around = state.subtasks[outer].current if outer is not None else None
    if outer is not None and around is not None and around.allowance is not None:
        rest, siblings = around.allowance - area_spend(state, outer), state.subtasks.members(outer)
    elif state.policy.budget_dollars is not None:
        rest, siblings = state.policy.budget_dollars - state.spent.priced_dollars, state.subtasks.all
    else:
        return estimated
    if estimated is not None:
        return min(estimated, max(0.0, rest))
    open_areas = (siblings & state.subtasks.areas & state.subtasks.open).bit_count()
    return max(0.0, rest) / (open_areas + 1)
