"""What surrounds an answer of the newest models: thinking, unique ids of its calls, its end at `max_tokens`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agents.simulated.admission import Admitted
from agents.simulated.replies import Block, Message, Redacted, Text, Thinking, ToolUse
from agents.simulated.rules.cache import CHARACTERS_PER_TOKEN, tokens
from agents.simulated.rules.thinking import sign, signed_id

EFFORT = {"low": 0.5, "medium": 1.0, "high": 2.0, "xhigh": 4.0, "max": 8.0}
"""How much longer a model thinks."""
REDACTED_ONE_IN = 16  # answers
SILENT = "I think about what to do next."


@dataclass(frozen=True, slots=True)
class Answer:
    """A message as it is sent, and the tokens it takes."""

    message: Message
    thinking_tokens: int
    output_tokens: int


def answer_with(message: Message, request: Admitted, thinking_tokens: int) -> Answer:
    """The message after its thinking, no longer than the request allows."""
    if request.body.max_tokens == 0:  # it only reads and writes the cache
        return Answer(Message((), "max_tokens"), 0, 0)
    message = replace(message, blocks=tuple(_with_unique_ids(message, request)))
    thought = 0
    if request.thinks:
        thought = round(thinking_tokens * EFFORT[request.effort])
        message, summary = _after_thinking(message, request)
        thought += tokens(len(summary))
    return _within(message, request.body.max_tokens, thought)


def _with_unique_ids(message: Message, request: Admitted) -> Iterator[Block]:
    """No two calls of a conversation have the same id, whatever step they belong to."""
    for index, block in enumerate(message.blocks):
        tag = f"{request.binding.prefix[:8]}{index}"
        yield replace(block, id=f"{block.id}_{tag}") if isinstance(block, ToolUse) else block


def _after_thinking(message: Message, request: Admitted) -> tuple[Message, str]:
    """The message after its thinking, and the thinking's summary. Between tool calls a model says nothing aloud."""
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    acts = any(isinstance(block, ToolUse) for block in message.blocks)
    summary = "\n".join(texts) if acts and texts else SILENT
    shown = summary if request.summarized else ""
    signature = sign(request.rules.id, request.binding, shown)
    blocks: list[Block] = [Thinking(shown, signature)]
    if int(request.binding.prefix[:4], 16) % REDACTED_ONE_IN == 0:
        binding = replace(request.binding, previous=signed_id(signature))
        blocks.append(Redacted(sign(request.rules.id, binding, "")))
    rest = [block for block in message.blocks if not (acts and isinstance(block, Text))]
    return replace(message, blocks=(*blocks, *rest)), summary


def _within(message: Message, most: int, thought: int) -> Answer:
    """The message, cut off where it and its thinking reach the limit."""
    left, kept = (most - thought) * CHARACTERS_PER_TOKEN, list[Block]()
    written = 0
    for block in message.blocks:
        if isinstance(block, Thinking | Redacted):
            kept.append(block)
            continue
        text = written_of(block)
        if written + len(text) > left:
            room = max(0, left - written)
            if isinstance(block, ToolUse) and room:
                kept.append(replace(block, broken=text[:room]))
            elif isinstance(block, Text) and text[:room].strip():
                kept.append(Text(text[:room]))
            return Answer(Message(tuple(kept), "max_tokens"), min(thought, most), most)
        written += len(text)
        kept.append(block)
    return Answer(message, thought, thought + tokens(written))


def written_of(block: Block) -> str:
    """What a block takes of the output, besides thinking."""
    match block:
        case Text(text=text):
            return text
        case ToolUse(broken=None):
            return json.dumps(block.input, ensure_ascii=False)
        case ToolUse(broken=broken):
            return broken or ""
        case _:
            return ""
