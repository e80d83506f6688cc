"""The limits of a run, and how much of each is used."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.base.ids import RunId
from fleet.core.policy.budget import run_budgets
from fleet.core.state.state import RunState
from fleet.core.views.planning.planner_view import ROUNDED


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit of a run; null means no limit."""

    limit: float | None
    """The limit; null: there is none."""
    left: float | None
    """How much of it is left; null where there is no limit."""


@dataclass(frozen=True, slots=True)
class LimitsView:
    """The limits of a run, as they are once its engine has taken what was requested."""

    run: RunId
    """The name of the run."""
    alive: bool
    """Whether a process runs the run; if not, `fleet resume` takes what was requested."""
    changed: bool
    """Whether this call requested a change."""
    workers: int
    """The most agents at once."""
    budgets: Mapping[str, LimitView]
    """By unit: `dollars`, `minutes`, `tokens`, `attempts`."""


def limits_view(state: RunState, now: float, *, alive: bool, changed: bool) -> LimitsView:
    budgets = {unit: LimitView(limit=None, left=None) for unit in ROUNDED}
    for budget in run_budgets(state, now):
        budgets[budget.unit] = LimitView(budget.limit, round(budget.remaining, ROUNDED[budget.unit]))
    return LimitsView(state.run, alive, changed, state.policy.workers, budgets)
