"""Compares two versions: the difference in each measure, paired by repository and seed, with its interval.

Runs of one repository are similar, so the bootstrap draws repositories first and then pairs of each. The interval shows
how much the difference would vary with other similar repositories.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Literal

from evaluation.score import Score

DRAWS = 4_000
LOW, HIGH = 0.025, 0.975
LEAST = 5  # repositories, below which no interval is believed
Verdict = Literal["better", "worse", "no difference shown", "too few repositories"]
Key = tuple[str, int]
"""A repository and a seed."""


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run. None if the run has no value for it."""

    name: str
    of: Callable[[Score], float | None]
    more_is_better: bool
    dollars: bool = False


MEASURES = (
    Measure("solved: held-out checks pass", lambda each: float(each.solved), more_is_better=True),
    Measure("subtasks landed", lambda each: _share(each.landed, each.planned), more_is_better=True),
    Measure(
        "criteria that fail before the work", lambda each: _share(each.proving, each.criteria), more_is_better=True
    ),
    Measure("touches that were needed", lambda each: _share(each.needed, each.allowed), more_is_better=True),
    Measure("pairs that overlap", lambda each: _share(each.overlapping, each.pairs), more_is_better=False),
    Measure("attempts per landed subtask", lambda each: _per(each.attempts, each.landed), more_is_better=False),
    Measure("planner calls", lambda each: float(each.planner_calls), more_is_better=False),
    Measure("dollars", lambda each: each.dollars, more_is_better=False, dollars=True),
    Measure("dollars of the planner", lambda each: each.planner_dollars, more_is_better=False, dollars=True),
    Measure(
        "dollars per landed subtask", lambda each: _per(each.dollars, each.landed), more_is_better=False, dollars=True
    ),
)


def _per(sum_: float, landed: int) -> float:
    """Return the amount per landed subtask. Without any, return the total amount."""
    return sum_ / max(1, landed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of two versions."""

    measure: str
    first: float
    second: float
    difference: float
    """Of the second from the first."""
    low: float
    high: float
    """Of the difference, in 95 of 100 draws."""
    pairs: int
    repositories: int
    verdict: Verdict
    """About the second version."""
    dollars: bool = False


def compare(first: Mapping[Key, Score], second: Mapping[Key, Score], seed: int = 0) -> list[Comparison]:
    """Every measure that both versions have pairs for."""
    found = []
    for measure in MEASURES:
        values = {
            key: (measure.of(first[key]), measure.of(second[key])) for key in sorted(first.keys() & second.keys())
        }
        pairs = {key: (one, two) for key, (one, two) in values.items() if one is not None and two is not None}
        if pairs:
            found.append(_compared(measure, pairs, seed))
    return found


def _compared(measure: Measure, pairs: Mapping[Key, tuple[float, float]], seed: int) -> Comparison:
    by_repository: dict[str, list[float]] = {}
    for (repository, _), (one, two) in pairs.items():
        by_repository.setdefault(repository, []).append(two - one)
    groups = list(by_repository.values())
    low, high = interval(groups, seed)
    difference = fmean(each for group in groups for each in group)
    return Comparison(
        measure.name,
        fmean(one for one, _ in pairs.values()),
        fmean(two for _, two in pairs.values()),
        difference,
        low,
        high,
        len(pairs),
        len(groups),
        _verdict(low, high, len(groups), more_is_better=measure.more_is_better),
        measure.dollars,
    )


def interval(groups: Sequence[Sequence[float]], seed: int = 0) -> tuple[float, float]:
    """In which the mean of the differences is in 95 of 100 draws of groups, and of differences in each."""
    chance = Random(seed)  # noqa: S311 - not a secret
    means = sorted(
        fmean(each for group in chance.choices(groups, k=len(groups)) for each in chance.choices(group, k=len(group)))
        for _ in range(DRAWS)
    )
    return means[int(LOW * DRAWS)], means[int(HIGH * DRAWS) - 1]


def _verdict(low: float, high: float, repositories: int, *, more_is_better: bool) -> Verdict:
    if repositories < LEAST:
        return "too few repositories"
    if low <= 0 <= high:
        return "no difference shown"
    return "better" if (low > 0) == more_is_better else "worse"
