"""Estimates as plain text: the median and the range of comparable landed subtasks, or why there is no number."""

from collections.abc import Callable, Sequence

from dashboards.text.formats import counted, duration, money
from dashboards.text.safe import safe
from fleet.core.state.facts import Spread, SubtaskEstimate
from fleet.core.views.run.estimate_view import EstimateView

UNKNOWN = "not enough past runs of this repository to estimate"
HEAD = "Estimate: "
NAME = 60


def estimate_rows(estimates: Sequence[SubtaskEstimate]) -> list[str]:
    """A line for each worker, size and model; one sentence if nothing is known of any."""
    return [_row(each) for each in estimates] if any(each.landed for each in estimates) else [UNKNOWN]


def comparable_lines(estimates: Sequence[SubtaskEstimate]) -> list[str]:
    """The same below a heading, as `fleet plan` and the review of a plan end."""
    first, *others = estimate_rows(estimates)
    return [f"{HEAD}{first}", *(f"{'':<{len(HEAD)}}{line}" for line in others)]


def estimate_lines(view: EstimateView) -> list[str]:
    """The output of `fleet run --estimate`."""
    return comparable_lines(view.estimates)


def _row(estimate: SubtaskEstimate) -> str:
    kind = f"{estimate.size} subtasks of {safe(estimate.worker, limit=NAME)}"
    if not estimate.landed:
        return f"{kind}: {UNKNOWN}"
    model = f" with {safe(estimate.model, limit=NAME)}" if estimate.model is not None else ""
    amounts = [_amount(estimate.dollars, money)] if estimate.dollars is not None else []
    amounts += [_amount(estimate.seconds, duration)] if estimate.seconds is not None else []
    each = ", ".join(amounts) or "cost and time unknown"
    return f"{kind}{model}: {each} each (median and range of {counted(estimate.landed, 'landed subtask')})"


def _amount(spread: Spread, shown: Callable[[float], str]) -> str:
    return f"{shown(spread.median)} ({shown(spread.low)} to {shown(spread.high)})"
