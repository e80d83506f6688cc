"""Forecasts as plain text: before a run what it is expected to cost and to take, after it how far off that was."""

from collections.abc import Callable, Iterator

from dashboards.text.formats import counted, duration, money
from fleet.core.state.facts import Expectation, Forecast
from fleet.core.views.planning.estimate_view import EarlierRuns, EstimateView
from fleet.core.views.run.forecast_view import AmountView, ForecastView

HEAD = "Forecast: "
INDENT = " " * len(HEAD)
TWICE = 2.0  # from here on, factors are easier to read than percent


def forecast_lines(forecast: Forecast) -> list[str]:
    """What a plan is expected to cost and to take, and what that rests on."""
    cost = "cost unknown, no model has a price"
    if forecast.dollars is not None:
        planner = f", the planner's {money(forecast.planner)} included" if forecast.planner else ""
        cost = f"{_range(money(forecast.dollars.median), money(forecast.dollars.p90))}{planner}"
    return [
        f"{HEAD}{cost}",
        f"{INDENT}{_minutes(forecast.minutes)} with {counted(forecast.workers, 'worker')} at once",
        f"{INDENT}{_rests(forecast)}",
    ]


def forecast_line(forecast: Forecast) -> str:
    """The same as an event."""
    cost = ""
    if forecast.dollars is not None:
        cost = f"{_range(money(forecast.dollars.median), money(forecast.dollars.p90))}; "
    return f"forecast: {cost}{_minutes(forecast.minutes)}"


def estimate_lines(view: EstimateView) -> list[str]:
    """What `fleet run --estimate` says."""
    if view.forecast is not None:
        lines = forecast_lines(view.forecast)
    elif view.earlier is not None:
        lines = _earlier(view.earlier)
    else:
        lines = [
            f"{HEAD}unknown: there is no plan yet, and no earlier run of this repository to compare with",
            *_plan_first(),
        ]
    if view.is_enough is False:
        lines.append(f"Budget:   {money(view.budget_dollars)} is less than nine of ten such runs may cost")
    return lines


def outcome_lines(view: ForecastView) -> Iterator[str]:
    """The forecast of a run, and how far off it was once the run has ended."""
    if view.dollars is not None:
        yield _amount(view.dollars, money, "cost")
    yield _amount(view.minutes, lambda minutes: duration(minutes * 60), "took")
    if view.added > 0:
        yield f"the plan grew since, from {counted(view.subtasks, 'subtask')} to {view.subtasks + view.added}"


def _amount(amount: AmountView, shown: Callable[[float], str], verb: str) -> str:
    expected = f"{shown(amount.median)}, nine of ten runs at most {shown(amount.p90)}"
    if amount.was is None:
        return expected
    off = "" if amount.off is None else f", {_off(amount.off)}"
    beyond = "" if amount.within else ": BEYOND what nine of ten runs need"
    return f"{expected}; it {verb} {shown(amount.was)}{off}{beyond}"


def _off(off: float) -> str:
    """`as much`, `12% more`, `3.4 times as much`."""
    if off >= TWICE - 1:
        return f"{off + 1:.1f} times as much"
    if (percent := round(abs(off) * 100)) == 0:
        return "as much"
    return f"{percent}% {'more' if off > 0 else 'less'}"


def _range(median: str, p90: str) -> str:
    return f"{median} expected, nine of ten runs at most {p90}"


def _minutes(minutes: Expectation) -> str:
    return _range(duration(minutes.median * 60), duration(minutes.p90 * 60))


def _rests(forecast: Forecast) -> str:
    seen = []
    if forecast.attempts:
        seen.append(counted(forecast.attempts, "earlier attempt"))
    if forecast.calls:
        seen.append(counted(forecast.calls, "planner call"))
    parts = [f"rests on {' and '.join(seen) or 'assumptions alone'}"]
    if forecast.unpriced:
        parts.append(f"{counted(forecast.unpriced, 'subtask')} without a known price")
    if forecast.areas:
        parts.append(f"{counted(forecast.areas, 'area')} left out, as nothing in them is planned yet")
    return f"({'; '.join(parts)})"


def _earlier(earlier: EarlierRuns) -> list[str]:
    lines = []
    if earlier.dollars is not None:
        lines.append(_range(money(earlier.dollars.median), money(earlier.dollars.p90)))
    if earlier.minutes is not None:
        lines.append(_minutes(earlier.minutes))
    lines = lines or ["unknown: earlier runs have neither a price nor a time"]
    rests = f"(as {counted(earlier.runs, 'earlier run')} here, half of which had at most {earlier.subtasks:g} subtasks)"
    return [f"{HEAD}{lines[0]}", *(f"{INDENT}{line}" for line in (*lines[1:], rests)), *_plan_first()]


def _plan_first() -> list[str]:
    return [
        "A plan says more, for the price of one call of the planner:",
        "  fleet plan EPIC -o plan.toml && fleet run --plan plan.toml --estimate",
    ]
