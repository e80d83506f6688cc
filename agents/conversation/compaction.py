"""Makes a long conversation shorter, without a model: old results lose their middle, then old turns become a list.

What the model said is never rewritten: its turns stay as they were, or go as a whole together with the results of their
calls, so that every call that is left has its result. The first message always stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.models.answer import Block, Message, size
from agents.models.prices import Price, limits_of, price_band
from agents.text import capped

_RECENT = (8, 4, 2, 1, 0)  # turns that stay as they are, fewer where that is not enough
_RESULT = 600  # characters that stay of an old result
_SAID, _DONE = 240, 160  # characters that stay of an old turn's text, and of each call and result


@dataclass(frozen=True, slots=True)
class Room:
    """How long a prompt may become, in tokens, and how long it is after it was made shorter."""

    most: int
    target: int


def room_for(model: str, max_tokens: int, prices: Mapping[str, Price], *, at: float, to: float) -> Room:
    """Below what the model takes, and below the price band where a prompt costs a multiple."""
    whole = max(1, limits_of(model).context_tokens - max_tokens)
    band = price_band(model, prices)
    limit = whole if band is None else min(whole, band)
    return Room(most=int(limit * at), target=int(limit * to))


@dataclass(frozen=True, slots=True)
class Shorter:
    """A conversation that was made shorter, and how."""

    messages: list[Message]
    how: str


def shorten(messages: Sequence[Message], characters: int, *, before_last: bool) -> Shorter | None:
    """The conversation in about so many characters, or as near as it goes; None where nothing can be left out.

    `before_last`: the last text of the first message must stay the last text from us.
    """
    shortest: Shorter | None = None
    for recent in _RECENT:
        for made in (_with_short_results(messages, recent), _listed(messages, recent, before_last=before_last)):
            if made is None or size(made.messages) >= size(shortest.messages if shortest else messages):
                continue
            shortest = made
            if size(made.messages) <= characters:
                return made
    return shortest


def _with_short_results(messages: Sequence[Message], recent: int) -> Shorter | None:
    """Results before the last turns without their middle."""
    old = _tail_at(messages, recent)
    made = [_with_short(message) if 0 < index < old else message for index, message in enumerate(messages)]
    return (
        Shorter(made, f"results before the last {recent} turns lost their middle") if made != list(messages) else None
    )


def _with_short(message: Message) -> Message:
    if message["role"] != "user":
        return message
    return {**message, "content": [_short(block) for block in message["content"]]}


def _short(block: Block) -> Block:
    if block["type"] != "tool_result" or len(block["content"]) <= 2 * _RESULT:
        return block
    return {**block, "content": capped(block["content"], _RESULT)}


def _listed(messages: Sequence[Message], recent: int, *, before_last: bool) -> Shorter | None:
    """The turns before the last ones as a list in the first message."""
    first, start = messages[0], _tail_at(messages, max(1, recent))
    lines = [line for message in messages[1:start] for line in _lines(message)]
    if not lines:
        return None
    told = "What you did so far, in short; the whole of it was left out, because the conversation grew long:\n"
    block: Block = {"type": "text", "text": told + "\n".join(lines)}
    content = list(first["content"])
    content.insert(len(content) - 1 if before_last else len(content), block)
    return Shorter(
        [{**first, "content": content}, *map(_with_short, messages[start:])],
        f"turns before the last {recent} are a list",
    )


def _tail_at(messages: Sequence[Message], recent: int) -> int:
    """Where the last turns begin: with what the model said."""
    if not recent:
        return len(messages)
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return turns[-recent] if len(turns) >= recent else (turns[0] if turns else len(messages))


def _lines(message: Message) -> list[str]:
    return [line for block in message["content"] if (line := _line(block))]


def _line(block: Mapping[str, Any]) -> str:
    match block["type"]:
        case "text":
            return f"- {_flat(block['text'], _SAID)}"
        case "tool_use":
            told = ", ".join(f"{name}={_flat(str(value), _DONE)}" for name, value in block["input"].items())
            return f"- {block['name']}({told})"
        case "tool_result":
            failed = "failed: " if block.get("is_error") else ""
            return f"  → {failed}{_flat(str(block['content']), _DONE)}"
        case _:
            return ""


def _flat(text: str, limit: int) -> str:
    """In one line: the beginning and the end."""
    flat = " ".join(text.split())
    half = limit // 2
    return flat if len(flat) <= limit else f"{flat[:half]} … {flat[-half:]}"
