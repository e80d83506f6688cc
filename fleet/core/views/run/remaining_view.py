"""How long a run will take and what it will cost: what landed so far says how the rest will go."""

from dataclasses import dataclass

from fleet.core.base.usage import Spend
from fleet.core.state.state import RunState
from fleet.core.state.status import progress
from fleet.core.views.run.needs import needed

LEAST = 3  # landed subtasks; fewer say nothing about the others


@dataclass(frozen=True, slots=True)
class RemainingView:
    """What is left of a run, if it continues as it did so far."""

    landed: int
    """Subtasks that have landed."""
    subtasks: int
    """Subtasks that are to land."""
    seconds: float
    """At work, until everything has landed."""
    dollars: float | None
    """What the whole run will have cost; null if the price of a call is unknown."""


def remaining_view(state: RunState, now: float, *, alive: bool) -> RemainingView | None:
    """None where nothing can be said: too little has landed, all has, or the run waits for a person or has stopped.

    Planners are called most at the beginning, so their cost is taken as it is; that of workers grows with what lands.
    """
    landed = progress(state)
    left = landed.total - landed.done
    waits = not alive or state.ended or (bool(needed(state, now, alive=alive)) and not any(state.underway()))
    if waits or landed.done < LEAST or left <= 0:
        return None
    share = landed.total / landed.done
    planners = sum((state.spend.get(role, Spend()) for role in ("planner", "sub_planner")), Spend())
    spent = state.spent.dollars
    dollars = None if spent is None else spent + (spent - planners.priced_dollars) * (share - 1)
    seconds = state.seconds(now)
    return RemainingView(landed.done, landed.total, seconds * (share - 1), dollars)
