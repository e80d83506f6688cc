"""Requests are held against the SDK's own types, unknown keys included."""

from typing import Any

import pytest

from agents.simulated.prompt import RequestError
from agents.simulated.rules import BINDING_BETA, check_shape

DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


def check(*, betas: tuple[str, ...] = (), counting: bool = False, **more: Any) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], **more}
    check_shape(body, betas=frozenset(betas), counting=counting)


def says(*blocks: dict[str, Any], role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(blocks)}]


@pytest.mark.parametrize(
    "more",
    [
        {
            "stream": True,
            "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        },
        {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}},
        {"diagnostics": {"previous_message_id": None}},
        {"tools": [{"type": "bash_20250124", "name": "bash"}, {"name": "x", "input_schema": {"type": "object"}}]},
        {"messages": says({"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": True})},
        {"messages": says({"type": "thinking", "thinking": "", "signature": "s"}, role="assistant")},
        {"messages": [{"role": "system", "content": "x"}]},
    ],
)
def test_what_the_types_allow_is_accepted(more: dict[str, Any]) -> None:
    check(**more)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"speling": 1}, r"^speling: Extra inputs are not permitted$"),
        ({"max_tokens": "many"}, r"^max_tokens: "),
        ({"messages": says({"type": "text", "txt": "x"})}, r"^messages\.0\.content\.0\.text: Field required$"),
        ({"messages": says({"type": "poem", "text": "x"})}, r"^messages\.0\.content\.0: Input should be an object"),
        ({"messages": [{"role": "bot", "content": "x"}]}, r"^messages\.0: Input should be an object"),
        ({"tools": [{"name": "x"}]}, r"^tools\.0\.input_schema: Field required$"),
        ({"tools": [{"name": "x", "input_schema": {}, "colour": "red"}]}, r"^tools\.0\.colour: Extra inputs"),
        ({"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "2h"}}]}, r"ttl: "),
        ({"output_config": {"effort": "huge"}}, r"^output_config\.effort: Input should be 'low', 'medium'"),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, r"^thinking\.display: "),
    ],
)
def test_what_they_do_not_is_refused_with_its_path(more: dict[str, Any], why: str) -> None:
    """Rule: "requests validated against the SDK's own types"; "unknown parameters and models refused"."""
    with pytest.raises(RequestError, match=why):
        check(**more)


def test_block_binding_needs_the_header_of_its_beta() -> None:
    """Rule: "(beta header `thinking-binding-controls-2026-08-01`…)"."""
    with pytest.raises(RequestError, match=r"thinking\.block_binding: Extra inputs are not permitted"):
        check(thinking=DROP)
    check(thinking=DROP, betas=(BINDING_BETA,))
    with pytest.raises(RequestError, match="'error' or 'drop_block'"):
        check(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "x"}}, betas=(BINDING_BETA,))


def test_counting_takes_a_request_without_a_length() -> None:
    with pytest.raises(RequestError, match="max_tokens"):
        check(counting=True)
