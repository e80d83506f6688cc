"""Who speaks when, and that every call is answered. Each test quotes its rule."""

from typing import Any

import pytest

from agents.simulated.prompt import RequestError
from agents.simulated.rules import check_turns


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [text("Go on."), *blocks] if not blocks else list(blocks)}


def answer(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id_: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "look", "input": {}}


def result(id_: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": "seen"}


def system(words: str = "Be brief.") -> dict[str, Any]:
    return {"role": "system", "content": words}


TWO_CALLS = [user(), answer(use("a"), use("b"))]


@pytest.mark.parametrize(
    "messages",
    [
        [user()],
        [user(), answer(text("Yes.")), user()],
        [*TWO_CALLS, user(result("a"), result("b"), text("Both."))],
        [*TWO_CALLS, user(result("a"), result("b")), system()],
        [*TWO_CALLS, user(result("a"), result("b")), system(), answer(text("So.")), user()],
    ],
    ids=["one message", "in turns", "results, then text", "new instructions last", "left there for good"],
)
def test_a_conversation_in_order_is_accepted(messages: list[dict[str, Any]]) -> None:
    """Rule: "a message of role `system` after the latest user message …, left there for good"."""
    check_turns(messages)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one message"),
        ([answer(text("Hello."))], 'first message must use the "user" role'),
        ([user(), user()], "roles must alternate"),
        ([user(), answer(text("a")), answer(text("b")), user()], "roles must alternate"),
        ([*TWO_CALLS, user(result("a"))], r"`tool_use` ids were found without `tool_result` blocks.*: b\."),
        (TWO_CALLS, "without `tool_result`"),
        ([*TWO_CALLS, user(result("b"), result("a"))], "in the order of their `tool_use`"),
        ([*TWO_CALLS, user(text("x"), result("a"), result("b"))], "must come before all other content"),
        ([*TWO_CALLS, user(result("a"), result("a"), result("b"))], "must have a single result"),
        ([user(result("a"))], "unexpected `tool_use_id`"),
        ([*TWO_CALLS, user(result("a"), result("b")), *TWO_CALLS[1:], user()], "`tool_use` ids must be unique: a"),
        ([user(text("  "))], "must contain non-whitespace text"),
        ([{"role": "user", "content": []}], "non-empty content"),
        ([user(), system(), system()], "must come directly after"),
        ([user(), answer(text("x")), system(), user()], "must come directly after"),
        ([user(use("a"))], "'user' message may not contain"),
    ],
)
def test_a_conversation_out_of_order_is_refused(messages: list[dict[str, Any]], why: str) -> None:
    """Rule: "alternation and every call answered by a result, in order"."""
    with pytest.raises(RequestError, match=why) as refused:
        check_turns(messages)
    assert refused.value.status == 400
