"""How long the cache should keep a prompt, by gaps and prices alone."""

import pytest

from agents.models.prices import UNKNOWN_GAPS, CacheRates, Price, cache_rates, ending_pays, hour_pays, touches_that_pay

OPUS, HAIKU = "claude-opus-5-5", "claude-haiku-5-5"
MINUTE = 60.0


def test_rates_are_those_of_the_prices() -> None:
    assert cache_rates(OPUS, {}) == CacheRates(new=4.0, written=5.0, written_for_an_hour=8.0, read=0.20)
    assert cache_rates("llama", {}) is None
    assert cache_rates("plain", {"plain": Price(input=1, output=2)}) is None
    assert cache_rates("own", {"own": Price(input=1, output=2, cache_write=1.25, cache_read=0.1)}) == CacheRates(
        1, 1.25, 2.0, 0.1
    )


@pytest.mark.parametrize(
    ("gaps", "pays"),
    [
        ([], False),  # used once
        ([1 * MINUTE] * 20, False),  # five minutes are enough
        ([6 * MINUTE], True),  # 8.2 against 10 dollars a million
        ([1 * MINUTE] * 10 + [6 * MINUTE] * 2, True),
        ([90 * MINUTE] * 3, False),  # an hour is not enough either
        ([6 * MINUTE, 90 * MINUTE, 90 * MINUTE], False),
        (list(UNKNOWN_GAPS), True),  # minutes apart, as a planner's calls are
    ],
)
def test_an_hour_pays_where_calls_are_minutes_apart(gaps: list[float], pays: bool) -> None:
    assert hour_pays(gaps, cache_rates(OPUS, {})) is pays


def test_without_prices_nothing_pays() -> None:
    assert not hour_pays([6 * MINUTE], None)
    assert touches_that_pay(None) == 0


def test_a_prompt_is_read_to_keep_it_only_as_long_as_writing_it_again_would_cost_more() -> None:
    for model, touches in ((OPUS, 24), (HAIKU, 11)):
        rates = cache_rates(model, {})
        assert rates is not None
        assert touches_that_pay(rates) == touches
        assert rates.written >= rates.read * (touches + 1)
        assert rates.written < rates.read * (touches + 2)


def test_a_first_message_is_written_to_its_end_where_enough_conversations_go_on() -> None:
    rates = cache_rates(OPUS, {})
    assert ending_pays(0, 2, rates)  # too few to know
    assert not ending_pays(2, 10, rates)  # 7.6 dollars a million saved for 10 paid
    assert ending_pays(3, 10, rates)
    assert ending_pays(0, 100, None)
