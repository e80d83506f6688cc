"""The rules over HTTP, by the real SDK: what an answer says of thinking, length, caching and limits."""

from typing import Any

import anthropic
import pytest

from agents.simulated.rules import BINDING_BETA
from tests.agents.simulated.conftest import (
    WORKER_TOOLS,
    Client,
    Connect,
    answered,
    calls,
    planner_messages,
    worker_messages,
)

LOOK: dict[str, Any] = {"workers": {"*": {"attempts": [{"do": "claim", "turns": 3}]}}}
SUMMARIZED = {"thinking": {"type": "adaptive", "display": "summarized"}}
TOOLS: Any = WORKER_TOOLS
MARKED = {"cache_control": {"type": "ephemeral"}}


async def refusal(client: Client, messages: list[dict[str, Any]], **more: Any) -> anthropic.APIStatusError:
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.ask(messages, WORKER_TOOLS, **more)
    return caught.value


async def turns(client: Client, count: int, **more: Any) -> list[dict[str, Any]]:
    """A conversation of so many turns, every answer sent back as it came."""
    messages = worker_messages()
    for _ in range(count):
        message = await client.ask(messages, WORKER_TOOLS, **more)
        messages = answered(messages, message, *["seen"] * len(calls(message)))
    return messages


async def test_every_answer_begins_with_thinking_that_says_nothing_unless_it_is_asked_to(connect: Connect) -> None:
    """Rule: "with empty text unless `thinking: {type: "adaptive", display: "summarized"}` asks for a summary"."""
    async with connect(LOOK) as client:
        silent = await client.ask(worker_messages(), WORKER_TOOLS)
        streamed = await client.stream(worker_messages(), WORKER_TOOLS)
        summarized = await client.stream(worker_messages(), WORKER_TOOLS, **SUMMARIZED)
    assert silent.content[0].type == streamed.content[0].type == summarized.content[0].type == "thinking"
    assert (silent.content[0].thinking, streamed.content[0].thinking) == ("", "")
    assert silent.content[0].signature == streamed.content[0].signature
    assert summarized.content[0].thinking == "First I look at what is there."
    assert not any(
        block.type == "text" for block in (*silent.content, *summarized.content)
    )  # between calls it only thinks


async def test_a_rewritten_front_is_refused_and_can_be_dropped_instead(connect: Connect) -> None:
    async with connect(LOOK) as client:
        messages = await turns(client, 2)
        messages[0]["content"][0]["text"] += "\nA summary of what you did so far."
        error = await refusal(client, messages)
        asked: dict[str, Any] = {"model": "claude-haiku-5-5", "max_tokens": 16_000, "messages": messages}
        asked["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        message = await client.sdk.beta.messages.create(**asked, tools=TOOLS, betas=[BINDING_BETA])
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert "bound to a different conversation" in str(error)
    dropped = message.model_dump()["input_transformations"]
    assert {each["reason"] for each in dropped} == {"prefix_binding_mismatch"}


async def test_max_tokens_counts_thinking(connect: Connect) -> None:
    """Rule: "`max_tokens` counts thinking … what it cuts off is billed and lost"."""
    async with connect(LOOK | {"thinking_tokens": 500}) as client:
        thinking = await client.ask(worker_messages(), WORKER_TOOLS, max_tokens=400)
        cut = await client.stream(worker_messages(), WORKER_TOOLS, max_tokens=515)
        whole = await client.ask(worker_messages(), WORKER_TOOLS)
    assert (thinking.stop_reason, thinking.usage.output_tokens) == ("max_tokens", 400)
    assert [block.type for block in thinking.content if block.type == "tool_use"] == []
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 515)
    assert whole.stop_reason == "tool_use"
    assert whole.usage.output_tokens_details is not None
    assert 500 < whole.usage.output_tokens_details.thinking_tokens < whole.usage.output_tokens


async def test_more_effort_thinks_longer(connect: Connect) -> None:
    async with connect(LOOK | {"thinking_tokens": 1000}) as client:
        lengths = [
            (await client.ask(worker_messages(), WORKER_TOOLS, output_config={"effort": effort})).usage.output_tokens
            for effort in ("low", "medium", "high")
        ]
    assert lengths == sorted(lengths)
    assert lengths[2] > lengths[0] + 1000


async def test_a_request_of_no_tokens_keeps_the_cache_warm(connect: Connect) -> None:
    """Rule: "Keep-alive by a request with `max_tokens: 0` before that"; and an hour passes in a second."""
    marked = worker_messages()
    marked[0]["content"][0] |= MARKED
    async with connect(LOOK | {"cache_minimum_tokens": 0, "clock_speed": 3600 * 1000}) as client:  # a ms is an hour
        first = await client.ask(marked, WORKER_TOOLS)
        later = await client.ask(marked, WORKER_TOOLS)
    assert first.usage.cache_creation_input_tokens
    assert later.usage.cache_read_input_tokens == 0
    async with connect(LOOK | {"cache_minimum_tokens": 0}) as client:
        await client.ask(marked, WORKER_TOOLS)
        kept = await client.ask(marked, WORKER_TOOLS, max_tokens=0)
    assert kept.usage.cache_read_input_tokens
    assert (kept.content, kept.usage.output_tokens, kept.stop_reason) == ([], 0, "max_tokens")


async def test_an_answer_says_for_how_long_its_prompt_was_written(connect: Connect) -> None:
    marked = worker_messages()
    marked[0]["content"][0] |= {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    async with connect(LOOK | {"cache_minimum_tokens": 0}) as client:
        usage = (await client.stream(marked, WORKER_TOOLS)).usage
    assert usage.cache_creation is not None
    assert usage.cache_creation.ephemeral_1h_input_tokens == usage.cache_creation_input_tokens
    assert usage.cache_creation.ephemeral_5m_input_tokens == 0


async def test_diagnostics_say_why_a_prompt_missed_the_cache(connect: Connect) -> None:
    """Rule: "`diagnostics` in the answer can tell why a prompt missed"."""
    async with connect(LOOK) as client:
        first = await client.ask(worker_messages(), WORKER_TOOLS)
        ask = {"diagnostics": {"previous_message_id": first.id}}
        grown = await client.ask(answered(worker_messages(), first, "a", "b"), WORKER_TOOLS, **ask)
        reasons = []
        for messages, more in (
            (worker_messages(id="other"), {}),
            (worker_messages(), {"system": "Be brief."}),
            (worker_messages(), {"model": "claude-opus-5-5"}),
            (worker_messages(), {"diagnostics": {"previous_message_id": "msg_unheard_of"}}),
        ):
            diagnostics = (await client.ask(messages, WORKER_TOOLS, **ask | more)).diagnostics
            assert diagnostics is not None
            assert diagnostics.cache_miss_reason is not None
            reasons.append(diagnostics.cache_miss_reason.type)
    assert grown.diagnostics is None
    assert reasons == ["messages_changed", "system_changed", "model_changed", "previous_message_not_found"]


async def test_models_are_listed_with_their_limits(connect: Connect) -> None:
    async with connect(LOOK) as client:
        listed = {model.id: model async for model in client.sdk.models.list()}
        one = await client.sdk.models.retrieve("claude-opus-5-5")
        with pytest.raises(anthropic.NotFoundError):
            await client.sdk.models.retrieve("claude-opus-9")
    assert set(listed) == {"claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"}
    assert listed["claude-opus-5-5"] == one
    assert (one.max_input_tokens, one.max_tokens) == (1_000_000, 128_000)


async def test_counting_tokens_answers_what_a_call_would_take(connect: Connect) -> None:
    messages: Any = worker_messages()
    async with connect(LOOK) as client:
        counted = await client.sdk.messages.count_tokens(model="claude-haiku-5-5", messages=messages, tools=TOOLS)
        usage = (await client.ask(messages, WORKER_TOOLS)).usage
    assert counted.input_tokens == usage.input_tokens


async def test_each_family_has_limits_of_its_own(connect: Connect) -> None:
    """Rule: "limits by model family in headers"."""
    async with connect(LOOK | {"limits": {"requests_per_minute": 1}}) as client:
        await client.ask(worker_messages(), WORKER_TOOLS)
        error = await refusal(client, worker_messages())
        other = await client.ask(planner_messages({}), [], model="claude-opus-5-5")
    assert error.status_code == 429
    assert error.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert 0 < float(error.response.headers["retry-after"]) <= 60
    assert other.content


async def test_no_two_calls_of_a_conversation_have_the_same_id(connect: Connect) -> None:
    async with connect(LOOK) as client:
        messages = await turns(client, 3)
    ids = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    assert len(ids) > 3
    assert len(set(ids)) == len(ids)


async def test_the_server_tells_which_rules_were_broken_and_what_all_answers_cost(connect: Connect) -> None:
    async with connect(LOOK) as client:
        await refusal(client, worker_messages(), thinking={"type": "enabled", "budget_tokens": 2000})
        await client.ask(worker_messages(), WORKER_TOOLS)
        troubles = (await client.sdk._client.get(f"{client.url}/troubles")).json()
    assert list(troubles["broken"].values()) == [1]
    assert troubles["requests"] == 2
    assert troubles["dollars"]["claude-haiku-5-5"] > 0
