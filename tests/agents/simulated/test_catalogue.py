"""The models that exist, what they accept and what they cost. Each test quotes its rule."""

from typing import Any

import pytest
from anthropic.types import ModelInfo

from agents.simulated.prompt import RequestError
from agents.simulated.rules import EFFORTS, MODELS, check_parameters, dollars, model_rules

OPUS, SONNET, HAIKU = (MODELS[f"claude-{line}-5-5"] for line in ("opus", "sonnet", "haiku"))


def body(**more: Any) -> dict[str, Any]:
    return {"max_tokens": 100, "messages": [{"role": "user", "content": "Go."}], **more}


def usage(*, new: int = 0, read: int = 0, short: int = 0, hour: int = 0, output: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": new,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": short + hour,
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": hour},
        "output_tokens": output,
    }


def test_the_models_are_those_of_the_table() -> None:
    """Rule: "context 1M, output at most 128k, cacheable prompt at least 512 tokens"."""
    assert {(each.context_tokens, each.output_tokens, each.cache_minimum_tokens) for each in MODELS.values()} == {
        (1_000_000, 128_000, 512)
    }
    assert [each.effort for each in (OPUS, SONNET, HAIKU)] == ["medium", "high", "medium"]


def test_limits_and_capabilities_are_in_the_sdks_own_form() -> None:
    """Rule: "`GET /v1/models` tells limits and capabilities"."""
    told = ModelInfo.model_validate(OPUS.info())
    assert (told.max_input_tokens, told.max_tokens) == (1_000_000, 128_000)
    assert told.capabilities is not None
    assert told.capabilities.effort.supported
    assert not told.capabilities.thinking.types.disabled.supported


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(RequestError, match="model: claude-opus-9") as refused:
        model_rules("claude-opus-9", None)
    assert refused.value.status == 404
    assert model_rules("claude-bygone-1", ("claude-bygone-1",)).context_tokens == 200_000


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"max_tokens": 128_001}, "max_tokens: 128001 > 128000"),
        ({"thinking": {"type": "disabled"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking.type"),
        ({"temperature": 1.0}, "temperature"),
        ({"top_k": 5}, "top_k"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "prefill"),
    ],
)
def test_what_the_newest_models_refuse(more: dict[str, Any], why: str) -> None:
    """Rule: "adaptive, always on"; "no prefill, no forced `tool_choice`, no temperature"."""
    with pytest.raises(RequestError, match=why):
        check_parameters(body(**more), OPUS)


def test_sonnet_and_haiku_may_be_asked_not_to_think() -> None:
    for rules in (SONNET, HAIKU):
        check_parameters(body(thinking={"type": "disabled"}, tool_choice={"type": "auto"}), rules)


def test_a_request_of_no_tokens_only_reads_and_writes_the_cache() -> None:
    """Rule: "Keep-alive by a request with `max_tokens: 0`"."""
    check_parameters(body(max_tokens=0), OPUS)


def test_an_hour_costs_twice_the_input_price_and_five_minutes_a_quarter_more() -> None:
    """Rule: "Writes to the cache for an hour cost 2 times the input price, for five minutes 1.25, reads 0.1"."""
    million = 1_000_000
    assert [dollars(OPUS, usage(**{kind: million})) for kind in ("new", "short", "hour", "read", "output")] == [
        pytest.approx(price) for price in (4.0, 5.0, 8.0, 0.20, 20.0)
    ]
    assert dollars(SONNET, usage(read=million)) == pytest.approx(0.10)


def test_haiku_costs_five_times_as_much_for_long_prompts() -> None:
    """Rule: "haiku costs five times that for prompts over 100,000 tokens"."""
    short, long = usage(read=99_000, new=1_000, output=10), usage(read=99_000, new=1_001, output=10)
    assert dollars(HAIKU, long) == pytest.approx(5 * dollars(HAIKU, short), rel=0.001)


def test_effort_has_five_levels() -> None:
    """Rule: "`output_config.effort`: `low`, `medium`, `high`, `xhigh`, `max`"."""
    assert EFFORTS == ("low", "medium", "high", "xhigh", "max")
