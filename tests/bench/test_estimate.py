"""Pretended runs stay within their forecast about as often as it says, also where nothing is as assumed."""

import random

from bench.estimate import AS_ASSUMED, DEARER, compare, draw_truth
from bench.population import COSTS


def test_most_pretended_runs_stay_within_the_90th_percentile_and_not_all_within_the_median() -> None:
    compared = [compare(seed, AS_ASSUMED, earlier=0) for seed in range(8)]
    for unit in ("dollars", "minutes"):
        assert sum(getattr(each, unit) <= 1 for each in compared) >= 5
        assert 1 <= sum(getattr(each, f"median_{unit}") <= 1 for each in compared) <= 7
    assert compared[0] == compare(0, AS_ASSUMED, earlier=0), "it is the same each time"


def test_what_earlier_runs_saw_makes_another_forecast() -> None:
    before, after = (compare(3, DEARER, earlier).median_dollars for earlier in (0, 1))
    assert before != after


def test_what_is_true_of_repositories_differs_from_what_is_assumed() -> None:
    truths = [draw_truth(random.Random(seed), DEARER) for seed in range(30)]  # noqa: S311 - a simulation
    dear = [truth.costs[rung] / COSTS[rung] for truth in truths for rung in COSTS]
    assert 1.4 < sum(dear) / len(dear) < 2.0
    assert max(dear) > 2 * min(dear)
