"""The messages of one conversation and their length.

The history only grows until it has to be compacted. The model's turns are never edited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.models.answer import (
    CHARACTERS_PER_TOKEN,
    Answer,
    Block,
    Message,
    Request,
    ToolCall,
    characters,
    size,
    without_thinking,
)
from agents.models.prices import ModelLimits, Price, price_band
from agents.models.text import capped, is_operator_text, well_formed, without_operator_tags
from agents.models.transcripts import Transcript

# ---- compaction ------------------------------------------------------------------------------------------------------
# Compacts a long conversation without a model: the middle of old results is cut, old turns become a list.
#
# The model's texts and calls are never rewritten. A turn is either kept or removed with the results of its calls, so
# that every remaining call has its result. The first message and the operator's instructions are always kept. Thinking
# is removed from the remaining turns, because its signature covers everything before it, which has changed.


_RECENT = (8, 4, 2, 1, 0)  # how many turns are kept unchanged: fewer if that is not enough
_RESULT = 600  # characters kept of an old result
_TEXT, _CALL = 240, 160  # characters kept of an old turn's text, and of each call and result


@dataclass(frozen=True, slots=True)
class PromptLimits:
    """The length of a prompt, in tokens, at which it is compacted, and the length to compact it to."""

    maximum: int
    target: int


def prompt_limits(
    model: str, accepts: ModelLimits, max_tokens: int, prices: Mapping[str, Price], *, at: float, to: float
) -> PromptLimits:
    """Compute limits from the model's context, or from the length above which prompts cost a multiple."""
    whole = max(1, accepts.context_tokens - max_tokens)
    limit = min(whole, price_band(model, prices) or whole)
    return PromptLimits(maximum=int(limit * at), target=int(limit * to))


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compacted conversation, and a description of the compaction."""

    messages: list[Message]
    how: str


def compact(messages: Sequence[Message], characters: int, *, before_last: bool) -> Compacted | None:
    """Compact the conversation to about `characters`, or as close as possible; None if it can't be shortened.

    `before_last`: the last text of the first message must remain the last text from fleet.
    """
    before, messages = messages, without_thinking(messages)
    shortest: Compacted | None = None
    for recent in _RECENT:
        for candidate in (_with_short_results(messages, recent), _list(messages, recent, before_last=before_last)):
            if candidate is None or size(candidate.messages) >= size(shortest.messages if shortest else before):
                continue
            shortest = candidate
            if size(candidate.messages) <= characters:
                return candidate
    return shortest


def _with_short_results(messages: Sequence[Message], recent: int) -> Compacted | None:
    """Cut the middle of results before the last turns."""
    end = _tail_start(messages, recent)
    made = [_shorten(message) if 0 < index < end else message for index, message in enumerate(messages)]
    changed = made != list(messages)
    return Compacted(made, f"cut the middle of results before the last {recent} turns") if changed else None


def _shorten(message: Message) -> Message:
    if message["role"] != "user":
        return message
    return {**message, "content": [_short_result(block) for block in message["content"]]}


def _short_result(block: Block) -> Block:
    if block["type"] != "tool_result" or len(block["content"]) <= 2 * _RESULT:
        return block
    return {**block, "content": capped(block["content"], _RESULT)}


def _list(messages: Sequence[Message], recent: int, *, before_last: bool) -> Compacted | None:
    """Replace the turns before the last ones with a list in the first message."""
    first, start = messages[0], _tail_start(messages, max(1, recent))
    left_out = [(message["role"], block) for message in messages[1:start] for block in message["content"]]
    instructions = [
        block
        for role, block in left_out
        if role == "user" and block["type"] == "text" and is_operator_text(block["text"])
    ]
    lines = [line for _, block in left_out if block not in instructions and (line := _line(block))]
    if not lines:
        return None
    heading = "A summary of your work so far. The full text was removed because the conversation became too long:\n"
    block: Block = {"type": "text", "text": heading + "\n".join(lines)}
    content = list(first["content"])
    at = len(content) - 1 if before_last else len(content)
    content[at:at] = [block, *instructions]
    rest = map(_shorten, messages[start:])
    return Compacted([{**first, "content": content}, *rest], f"replaced turns before the last {recent} with a list")


def _tail_start(messages: Sequence[Message], recent: int) -> int:
    """Return the index of the answer at which the last turns start."""
    if not recent:
        return len(messages)
    turns = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    return turns[-recent] if len(turns) >= recent else (turns[0] if turns else len(messages))


def _line(block: Mapping[str, Any]) -> str:
    match block["type"]:
        case "text":
            return f"- {_ends(block['text'], _TEXT)}"
        case "tool_use":
            arguments = ", ".join(f"{name}={_ends(str(value), _CALL)}" for name, value in block["input"].items())
            return f"- {block['name']}({arguments})"
        case "tool_result":
            failed = "failed: " if block.get("is_error") else ""
            return f"  → {failed}{_ends(str(block['content']), _CALL)}"
        case _:
            return ""


def _ends(text: str, limit: int) -> str:
    """Return the start and the end, on one line."""
    flat = without_operator_tags(" ".join(text.split()))
    half = limit // 2
    return flat if len(flat) <= limit else f"{flat[:half]} … {flat[-half:]}"


# ---- history ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class History:
    """Both sides of a conversation."""

    transcript: Transcript
    reminder: str
    """A text that must remain the last one from fleet, or empty."""
    fixed: int
    """The characters of the system prompt and the tools, which are part of every request."""
    messages: list[Message] = field(default_factory=list)
    _grown: int = 0
    """The characters of the messages."""
    _tokens_per_character: float = 1 / CHARACTERS_PER_TOKEN

    @property
    def length(self) -> int:
        return self.fixed + self._grown

    @property
    def is_ours(self) -> bool:
        """Whether the last message is from fleet, so that more text can be added to it."""
        return bool(self.messages) and self.messages[-1]["role"] == "user"

    def add_ours(self, blocks: Sequence[Block], *, event: str = "user") -> None:
        content = [*blocks]
        if self.messages and self.reminder and any(block["type"] == "text" for block in content):
            content.append(text_block(self.reminder))
        self._grown += size(content)
        self.transcript.write(event, content=content)
        if self.is_ours:  # after an empty answer, or with an instruction
            content = [*self.messages.pop()["content"], *content]
        self.messages.append({"role": "user", "content": content})

    def add_answer(self, answer: Answer) -> None:
        """Add the answer unchanged, except for empty texts, which the service would reject."""
        blocks = [block for block in answer.blocks if block["type"] != "text" or block["text"].strip()]
        if blocks:
            self._grown += size(blocks)
            self.messages.append({"role": "assistant", "content": blocks})

    def add_call(self, call: ToolCall) -> None:
        """Add a call as if the model had made it."""
        block: Block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
        self._grown += size([block])
        self.messages.append({"role": "assistant", "content": [block]})

    def make_room(self, limits: PromptLimits | None) -> None:
        """Compact the history before the prompt is too long or costs a multiple."""
        tokens = round(self.length * self._tokens_per_character)
        if limits is not None and len(self.messages) > 1 and tokens > limits.maximum:
            self.compact(limits.target / tokens, f"about {tokens} tokens of at most {limits.maximum}")

    def compact(self, share: float, why: str) -> bool:
        """Compact the history to this share of its length. Return whether it became shorter."""
        before = self._grown
        compacted = compact(self.messages, int(before * share), before_last=bool(self.reminder))
        if compacted is None:
            return False
        self.messages = compacted.messages
        self._grown = size(self.messages)
        lengths = {"characters_before": before, "characters_after": self._grown}
        self.transcript.write("compacted", why=why, how=compacted.how, **lengths)
        return True

    def strip_thinking(self, why: str) -> bool:
        """Remove all thinking. Return whether there was any."""
        stripped = without_thinking(self.messages)
        if stripped == self.messages:
            return False
        self.messages, self._grown = stripped, size(stripped)
        self.transcript.write("stripped", why=why)
        return True

    def calibrate(self, request: Request, answer: Answer) -> None:
        """Update the number of tokens per character from an answer."""
        if prompt := answer.usage.prompt:
            self._tokens_per_character = prompt / max(1, characters(request))

    def tail(self) -> str:
        """Return the last message of each side, without fleet's texts to the model."""
        blocks = (
            block
            for message in self.messages[-2:]
            for block in message["content"]
            if message["role"] == "assistant" or block.get("type") != "text"
        )
        return "\n".join(map(_plain, blocks))


def text_block(text: str) -> Block:
    return {"type": "text", "text": well_formed(text)}


def _plain(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "thinking":
            return str(block["thinking"])
        case "tool_use":
            return f"[{block['name']}] {block['input']}"
        case "tool_result":
            return str(block["content"])
        case _:
            return ""
