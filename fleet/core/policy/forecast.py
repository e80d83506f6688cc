"""What the workers of a plan will cost, by the same expectations that choose rungs: the median and the 90th percentile.

Two kinds of doubt make the range: how each subtask goes, which evens out over many of them, and how well the rungs do,
which does not. The calls of the planner are not in it. Pure: the same plan and evidence make the same forecast.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from fleet.core.plans.plan import PLANNER, Plan
from fleet.core.plans.rungs import Ladder, Size, size_of
from fleet.core.policy.ladder import BOUND, WEIGHT, Expected, cheapest, evidence, expectations, rung_options
from fleet.core.state.facts import RungTally

SPREAD = 0.6  # of the cost of one attempt, as a share of its mean
DOUBT = 0.4  # of the mean itself while nothing was seen of it


@dataclass(frozen=True, slots=True)
class Forecast:
    """Dollars of a plan's workers."""

    median: float
    ninth: float
    """Nine of ten runs should cost at most this."""
    seen: int
    """How many earlier attempts it rests on; with none, on assumptions alone."""
    unknown: int
    """Subtasks without an expectation: they are left out."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What one subtask is expected to cost, the variance of that, and the variance of what is expected."""

    mean: float
    variance: float
    doubt: float


def forecast(plan: Plan, ladders: Mapping[str, Ladder], tallies: Sequence[RungTally], *, attempts: int) -> Forecast:
    """`ladders` has one for every worker whose models have a price; `attempts` are made at a subtask at most."""
    planned = [subtask for subtask in plan.subtasks if subtask.worker != PLANNER]
    known = [each for each in planned if each.worker in ladders and each.model is None and each.effort is None]
    groups = Counter((subtask.worker, size_of(subtask.estimate)) for subtask in known)
    mean = variance = 0.0
    unknown, seen = len(planned) - len(known), 0
    for (worker, size), count in groups.items():
        group = _group(ladders[worker], tallies, worker, size, attempts)
        if group is None:
            unknown += count
            continue
        mean += count * group.mean
        variance += count * group.variance + count**2 * group.doubt
    for worker in {worker for worker, _ in groups}:
        rungs = {(rung.model, rung.effort) for rung in ladders[worker].rungs}
        seen += sum(each.tried for key, each in evidence(tallies, worker).items() if key[:2] in rungs)
    if not mean:
        return Forecast(0.0, 0.0, seen, unknown)
    width = log(1.0 + variance / mean**2)
    median = mean / sqrt(1.0 + variance / mean**2)
    return Forecast(median, median * exp(BOUND * sqrt(width)), seen, unknown)


def _group(ladder: Ladder, tallies: Sequence[RungTally], worker: str, size: Size, attempts: int) -> _Group | None:
    seen = evidence(tallies, worker)
    expected = expectations(ladder, seen, size)
    first = ladder.first if ladder.first is not None else cheapest(rung_options(ladder, seen, size, attempts=attempts))
    if first is None:
        return None
    path = [min(first + step, len(expected) - 1) for step in range(attempts)]
    mean, variance = _moments(expected, path)
    doubt = 0.0
    for index in set(path):
        each = expected[index]
        low, high = (
            _moments([*expected[:index], each.landing(share), *expected[index + 1 :]], path)[0]
            for share in (each.low, each.high)
        )
        doubt += ((low - high) / (2 * BOUND)) ** 2
        doubt += (_paid(expected, path, index) * DOUBT) ** 2 / (1.0 + each.priced / WEIGHT)
    return _Group(mean, variance, doubt)


def _moments(expected: Sequence[Expected], path: Sequence[int]) -> tuple[float, float]:
    """The mean and the variance of what a subtask costs on its way up the ladder."""
    reached, paid, mean, square, spread = 1.0, 0.0, 0.0, 0.0, 0.0
    for step, index in enumerate(path):
        cost, lands = expected[index].dollars or 0.0, expected[index].lands
        paid += cost
        ends = reached * (1.0 if step == len(path) - 1 else lands)
        mean += ends * paid
        square += ends * paid**2
        spread += reached * (SPREAD * cost) ** 2
        reached *= 1.0 - lands
    return mean, square - mean**2 + spread


def _paid(expected: Sequence[Expected], path: Sequence[int], rung: int) -> float:
    """What a subtask is expected to pay for attempts with one rung."""
    reached, paid = 1.0, 0.0
    for index in path:
        paid += reached * (expected[index].dollars or 0.0) * (index == rung)
        reached *= 1.0 - expected[index].lands
    return paid
