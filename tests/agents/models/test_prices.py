"""What calls cost."""

import pytest

from agents.models.prices import Price, built_in, dollars
from fleet.core.usage import Usage

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("claude-opus-5-5", Usage(input=MILLION, output=MILLION), 24.0),
        ("claude-opus-5-5", Usage(cache_write=MILLION, cache_read=MILLION), 5.2),
        ("claude-sonnet-5-5", Usage(input=MILLION, output=MILLION), 12.0),
        ("claude-haiku-5-5", Usage(input=50_000, cache_read=50_000, output=1000), 0.006),
        ("claude-haiku-5-5", Usage(input=50_000, cache_read=50_001, output=1000), 0.0300005 - 5e-8 * 9),
        ("claude-haiku-5-5-20261001", Usage(output=MILLION), 0.5),
    ],
)
def test_known_models_have_their_price(model: str, usage: Usage, cost: float) -> None:
    assert dollars(model, usage, {}) == pytest.approx(cost)


def test_an_unknown_model_costs_unknown() -> None:
    assert dollars("llama", Usage(input=1), {}) is None


def test_settings_override_the_table() -> None:
    price = Price(input=1, output=2, cache_write=3, cache_read=4)
    assert dollars("llama", Usage(input=MILLION), {"llama": price}) == 1.0
    assert dollars("plain", Usage(cache_read=MILLION), {"plain": Price(input=1, output=2)}) == 1.0
    assert dollars("claude-opus-5-5", Usage(output=MILLION), {"claude-opus-5-5": price}) == 2.0


def test_the_table_says_how_old_it_is() -> None:
    assert built_in().as_of >= "2026-11-18"
