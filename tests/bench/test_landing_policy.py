"""How much the landing policy lands per hour, in simulation, compared with the most that nested tests allow."""

import pytest

from bench.landing_policy import RATES, FullQueue, adaptive, bound


@pytest.mark.parametrize("rate", [*(pytest.param(rate, marks=pytest.mark.thorough) for rate in RATES[:-1]), RATES[-1]])
@pytest.mark.parametrize(("reruns", "wanted"), [(0, 0.85), (1, 0.78)], ids=["believed", "tested again"])
def test_with_two_slots_a_full_queue_lands_most_of_the_bound(rate: float, reruns: int, wanted: float) -> None:
    """To test the last suspect again takes a slot; nobody is sent back for one flaky red."""
    assert FullQueue(adaptive, rate, reruns=reruns).landed_per_hour(20) / bound(rate, 2) >= wanted


@pytest.mark.thorough
def test_more_slots_land_more() -> None:
    hourly = [FullQueue(adaptive, 0.05, slots=slots).landed_per_hour(10) for slots in (1, 2, 4, 8)]
    assert hourly == sorted(hourly)


@pytest.mark.parametrize("hours", [5, pytest.param(20, marks=pytest.mark.thorough)])
def test_batches_whose_tests_take_different_times_cost_little(hours: int) -> None:
    even, uneven = (FullQueue(adaptive, 0.05, jitter=jitter).landed_per_hour(hours) for jitter in (0.0, 0.5))
    assert uneven > 0.85 * even
