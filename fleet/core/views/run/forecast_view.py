"""A run beside its forecast: what was expected before anything was begun, and how far off that was."""

from dataclasses import dataclass

from fleet.core.state.facts import Expectation
from fleet.core.state.state import RunState
from fleet.core.views.run.remaining_view import remaining_view


@dataclass(frozen=True, slots=True)
class AmountView:
    """One amount of a forecast, and what it came to."""

    median: float
    """Half of all runs should need at most this."""
    p90: float
    """Nine of ten runs should need at most this."""
    was: float | None
    """What the run needed; null until it has ended, and where a price is unknown."""
    off: float | None
    """By which share of the median that is more, or less where it is negative; null with `was`."""
    within: bool | None
    """Whether it is at most `p90`; null with `was`."""
    likely: float | None = None
    """What the run will need in all, if it continues as it did so far; null where that says nothing: too little has
    landed, the run waits for a person, no process works on it, or it has ended."""


@dataclass(frozen=True, slots=True)
class ForecastView:
    """What a run was expected to cost and to take, before anything of its plan was begun, and how far off that was."""

    plan_version: int
    """The version of the plan that it is about."""
    subtasks: int
    """How many subtasks that version has."""
    added: int
    """How many were added since."""
    workers: int
    """How many agents may work at once."""
    dollars: AmountView | None
    """Of workers and planner; null if no price is known."""
    minutes: AmountView
    """At work: time without an engine does not count."""
    attempts: int
    """How many earlier attempts it rests on; 0: on assumptions alone."""
    calls: int
    """How many earlier calls of the planner it rests on."""
    unpriced: int
    """Subtasks whose cost is unknown."""
    areas: int
    """Areas, which were not planned yet and are left out."""


def forecast_view(state: RunState, now: float, *, alive: bool) -> ForecastView | None:
    """None if the run has no forecast: history is replayed, or the plan is not made yet."""
    if state.forecast is None:
        return None
    made, left = state.forecast.forecast, remaining_view(state, now, alive=alive)
    minutes, dollars = ((state.seconds(now) + left.seconds) / 60, left.dollars) if left is not None else (None, None)
    return ForecastView(
        plan_version=state.forecast.version,
        subtasks=made.subtasks,
        added=len(state.plan.subtasks) - made.subtasks,
        workers=made.workers,
        dollars=None
        if made.dollars is None
        else _amount(made.dollars, state.spent.dollars, dollars, ended=state.ended),
        minutes=_amount(made.minutes, state.seconds(now) / 60, minutes, ended=state.ended),
        attempts=made.attempts,
        calls=made.calls,
        unpriced=made.unpriced,
        areas=made.areas,
    )


def _amount(expected: Expectation, was: float | None, likely: float | None, *, ended: bool) -> AmountView:
    if was is None or not ended:
        likely = None if likely is None else round(likely, 6)
        return AmountView(expected.median, expected.p90, None, None, None, likely)
    off = round(was / expected.median - 1, 4) if expected.median else None
    return AmountView(expected.median, expected.p90, round(was, 6), off, was <= expected.p90)
