"""Preserved thinking: a conversation only grows. Each test quotes its rule."""

from dataclasses import replace
from typing import Any

import pytest

from agents.simulated.prompt import RequestError, pieces_of
from agents.simulated.rules import Binding, check_thinking, sign, signed_id

OPUS, HAIKU = "claude-opus-5-5", "claude-haiku-5-5"
Blocks = list[dict[str, Any]]


def bound(body: dict[str, Any], *, drop: bool = False, reader: str = OPUS) -> Binding:
    return check_thinking(pieces_of(body), reader, drop=drop)


def conversation(turns: int = 3) -> dict[str, Any]:
    """A conversation in which every answer begins with thinking, sent back whole."""
    body: dict[str, Any] = {
        "system": "Work.",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Begin."}],
    }
    for turn in range(turns):
        thinking = {"type": "thinking", "thinking": "", "signature": sign(OPUS, bound(body), "")}
        body["messages"] += [
            {"role": "assistant", "content": [thinking, {"type": "text", "text": f"Answer {turn}"}]},
            {"role": "user", "content": [{"type": "text", "text": f"Go on {turn}"}]},
        ]
    return body


def content(body: dict[str, Any], message: int) -> Blocks:
    blocks: Blocks = body["messages"][message]["content"]
    return blocks


def test_what_comes_back_as_it_was_is_accepted() -> None:
    """Rule: "The whole content of an answer goes back as it came, in order, empty thinking included"."""
    assert bound(conversation(5)).dropped == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(system="Work well."),
        lambda body: body["tools"][0].update(description="Look."),
        lambda body: body["messages"][0].update(content="Begin now."),
        lambda body: content(body, 1)[1].update(text="Answer nothing"),
        lambda body: body["messages"].__delitem__(slice(1, 3)),
    ],
    ids=["system", "tools", "the first message", "an earlier answer", "earlier messages left out"],
)
def test_thinking_after_a_change_is_refused(change: Any) -> None:
    """Rule: "**nothing before it has changed**: `system`, `tools`, every earlier message"."""
    body = conversation()
    change(body)
    with pytest.raises(RequestError, match="The block is bound to a different conversation") as refused:
        bound(body)
    assert refused.value.status == 400


def test_no_thinking_between_other_thinking_is_left_out() -> None:
    """Rule: "no thinking block between others is left out"."""
    body = conversation()
    del content(body, 3)[0]
    with pytest.raises(RequestError, match=r"messages\.5\.content\.0: Invalid `signature`"):
        bound(body)


def test_thinking_may_be_removed_from_the_front() -> None:
    """Rule: "From the front of the history thinking may be removed"."""
    body = conversation()
    del content(body, 1)[0]
    assert bound(body).dropped == ()
    del content(body, 3)[0]
    assert bound(body).dropped == ()


def test_marks_are_not_part_of_the_comparison() -> None:
    """Rule: "`cache_control` marks are not part of the comparison"."""
    body = conversation()
    body["messages"][0]["content"] = [{"type": "text", "text": "Begin.", "cache_control": {"type": "ephemeral"}}]
    assert bound(body).dropped == ()


def test_what_no_longer_fits_can_be_dropped_instead() -> None:
    """Rule: "`prefix_mismatch_behavior` is `error` or `drop_block` … reported as `thinking_dropped`"."""
    body = conversation()
    body["messages"][0]["content"] = "Begin now."
    dropped = bound(body, drop=True).dropped
    assert [each.record() for each in dropped] == [
        {"type": "thinking_dropped", "path": f"messages.{at}.content.0", "reason": "prefix_binding_mismatch"}
        for at in (1, 3, 5)
    ]


def test_a_conversation_goes_on_after_blocks_were_dropped() -> None:
    body = conversation()
    body["messages"][0]["content"] = "Begin now."
    thinking = {"type": "thinking", "thinking": "", "signature": sign(OPUS, bound(body, drop=True), "")}
    body["messages"] += [{"role": "assistant", "content": [thinking]}, {"role": "user", "content": "Go on."}]
    assert len(bound(body, drop=True).dropped) == 3


def test_thinking_of_another_model_is_dropped_in_silence() -> None:
    """Rule: "the model may read it (else it is dropped silently)"."""
    body = conversation()
    assert {each.reason for each in bound(body, reader=HAIKU).dropped} == {"model_binding_mismatch"}


def test_thinking_that_the_service_did_not_make_is_refused() -> None:
    body = conversation()
    content(body, 1)[0]["thinking"] = "made up"
    with pytest.raises(RequestError, match=r"messages\.1\.content\.0: Invalid `signature` in `thinking` block$"):
        bound(body)
    content(body, 1)[0].update(thinking="", signature="AAAA")
    with pytest.raises(RequestError, match="Invalid `signature`"):
        bound(body)


def test_redacted_thinking_is_bound_like_any_other() -> None:
    """Rule: "blocks `thinking` and `redacted_thinking` come back with a `signature`"."""
    body = conversation(0)
    first = sign(OPUS, bound(body), "")
    redacted = sign(OPUS, replace(bound(body), previous=signed_id(first)), "")
    blocks = [
        {"type": "thinking", "thinking": "", "signature": first},
        {"type": "redacted_thinking", "data": redacted},
        {"type": "text", "text": "Answer"},
    ]
    body["messages"] += [{"role": "assistant", "content": blocks}, {"role": "user", "content": "Go on."}]
    assert bound(body).dropped == ()
    body["system"] = "Work well."
    with pytest.raises(RequestError, match="bound to a different conversation"):
        bound(body)
