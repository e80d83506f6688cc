"""What calls cost."""

import pytest

from agents.models.prices import Price, dollars, limits_of, reported_limits
from agents.simulated.rules import MODELS
from agents.simulated.rules import dollars as charged
from fleet.core.base.usage import Usage

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("claude-opus-5-5", Usage(input=MILLION, output=MILLION), 24.0),
        ("claude-opus-5-5", Usage(cache_write=MILLION, cache_read=MILLION), 5.2),
        ("claude-opus-5-5", Usage(cache_write=MILLION, cache_write_1h=MILLION), 8.0),
        ("claude-sonnet-5-5", Usage(cache_write=MILLION, cache_write_1h=MILLION // 2), 3.25),
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


@pytest.mark.parametrize("line", ["opus", "sonnet", "haiku"])
def test_the_table_costs_what_the_service_charges_and_knows_what_it_accepts(line: str) -> None:
    model = f"claude-{line}-5-5"
    rules = MODELS[model]
    for usage in (
        Usage(input=1000, output=2000, cache_read=30_000, cache_write=4000, cache_write_1h=1000),
        Usage(input=1000, output=2000, cache_read=300_000, cache_write=4000),
    ):
        billed = {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_creation": {
                "ephemeral_1h_input_tokens": usage.cache_write_1h,
                "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_1h,
            },
        }
        assert dollars(model, usage, {}) == pytest.approx(charged(rules, billed))
    limits = limits_of(model)
    assert (limits.context_tokens, limits.output_tokens) == (rules.context_tokens, rules.output_tokens)
    assert limits.cache_minimum_tokens == rules.cache_minimum_tokens


def test_limits_are_taken_from_the_service_where_it_reports_any() -> None:
    reported = reported_limits("claude-opus-5-5", 2_000_000, None)
    assert reported is not None
    assert (reported.context_tokens, reported.output_tokens) == (2_000_000, 128_000)
    assert reported_limits("claude-opus-5-5", None, None) is None
    assert reported_limits("claude-opus-5-5", "many", 5) is None
    assert reported_limits("claude-opus-5-5", -1, 5) is None


def test_settings_override_the_table() -> None:
    price = Price(input=1, output=2, cache_write=3, cache_read=4)
    assert dollars("llama", Usage(input=MILLION), {"llama": price}) == 1.0
    assert dollars("plain", Usage(cache_read=MILLION), {"plain": Price(input=1, output=2)}) == 1.0
    assert dollars("claude-opus-5-5", Usage(output=MILLION), {"claude-opus-5-5": price}) == 2.0
