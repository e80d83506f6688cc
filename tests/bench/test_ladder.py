"""A ladder by evidence lands a pretended population for less than the dearest or the cheapest rung alone."""

from bench.ladder import CHEAPEST, DEAREST, sum_of
from bench.population import LANDS


def test_a_ladder_by_evidence_costs_less_than_one_rung_alone() -> None:
    names = tuple(LANDS)
    ladder, dear, cheap = (sum_of(rungs, runs=1, subtasks=200) for rungs in (names, names[-1:], names[:1]))
    assert ladder.dollars + ladder.left <= (DEAREST + 0.1) * (dear.dollars + dear.left)
    assert ladder.dollars + ladder.left <= CHEAPEST * (cheap.dollars + cheap.left)
    assert ladder.landed >= 0.95 * dear.landed > cheap.landed


def test_a_rung_that_seldom_lands_is_left_out_as_soon_as_that_is_seen() -> None:
    firsts = sum_of(tuple(LANDS), runs=1, subtasks=200).firsts
    assert sum(firsts.values()) == 200
    assert len(firsts) > 1, "some subtasks explore"
    assert max(firsts.values()) >= 0.8 * 200
