"""What a run would cost and take, as `fleet run --estimate` prints it."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.core.forecast.earlier import expect_next
from fleet.core.state.facts import Expectation, Forecast


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What runs of this repository cost and took in which the planner made the plan."""

    runs: int
    """How many there are."""
    subtasks: float
    """How many subtasks half of them had at most."""
    dollars: Expectation | None
    """What the next one may cost; null if a price is unknown."""
    minutes: Expectation | None
    """What it may take; null if none of them took any time."""


@dataclass(frozen=True, slots=True)
class EstimateView:
    """What a run would cost and take. Nothing was called for it."""

    forecast: Forecast | None
    """Of the plan; null where only an epic is given: its plan is not known yet."""
    earlier: EarlierRuns | None
    """Where only an epic is given: what earlier epics came to; null if there are none."""
    budget_dollars: float | None
    """The budget that the run would have; null: none."""
    is_enough: bool | None
    """Whether the budget covers what nine of ten such runs cost; null without a budget or a price."""


def estimate_view(forecast: Forecast | None, earlier: EarlierRuns | None, budget: float | None) -> EstimateView:
    dollars = forecast.dollars if forecast is not None else earlier.dollars if earlier is not None else None
    is_enough = None if budget is None or dollars is None else budget >= dollars.p90
    return EstimateView(forecast, earlier, budget, is_enough)


def earlier_runs(runs: Sequence[tuple[int, float | None, float]]) -> EarlierRuns | None:
    """`runs` are the subtasks, dollars and minutes of each; None without any."""
    if not runs:
        return None
    subtasks = sorted(count for count, _, _ in runs)
    dollars = [spent for _, spent, _ in runs if spent is not None]
    return EarlierRuns(
        runs=len(runs),
        subtasks=subtasks[(len(runs) - 1) // 2],
        dollars=_expectation(dollars) if len(dollars) == len(runs) else None,
        minutes=_expectation([minutes for _, _, minutes in runs]),
    )


def _expectation(amounts: Sequence[float]) -> Expectation | None:
    expected = expect_next(amounts)
    if expected is None:
        return None
    return Expectation(median=float(f"{expected[0]:.4g}"), p90=float(f"{expected[1]:.4g}"))
