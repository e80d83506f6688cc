"""The messages of one conversation and their length.

The history only grows until it has to be compacted; the model's own turns stay as they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.base.text import well_formed
from agents.base.transcripts import Transcript
from agents.conversation.compaction import PromptLimits, compact
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


@dataclass(slots=True)
class History:
    """Both sides of a conversation."""

    transcript: Transcript
    reminder: str
    """A text that must stay the last one from us; empty: none."""
    fixed: int
    """Characters at the front of every request: the system prompt and the tools."""
    messages: list[Message] = field(default_factory=list)
    _grown: int = 0
    """Characters of the messages."""
    _tokens_per_character: float = 1 / CHARACTERS_PER_TOKEN

    @property
    def length(self) -> int:
        return self.fixed + self._grown

    @property
    def is_ours(self) -> bool:
        """Whether the last word is ours, so that more of us may follow it."""
        return bool(self.messages) and self.messages[-1]["role"] == "user"

    def add_ours(self, blocks: Sequence[Block], *, event: str = "user") -> None:
        content = [*blocks]
        if self.messages and self.reminder and any(block["type"] == "text" for block in content):
            content.append(text_block(self.reminder))
        self._grown += size(content)
        self.transcript.write(event, content=content)
        if self.is_ours:  # after an empty answer, or with what the operator says
            content = [*self.messages.pop()["content"], *content]
        self.messages.append({"role": "user", "content": content})

    def add_answer(self, answer: Answer) -> None:
        """The answer unchanged, except for empty texts, which the service would refuse."""
        blocks = [block for block in answer.blocks if block["type"] != "text" or block["text"].strip()]
        if blocks:
            self._grown += size(blocks)
            self.messages.append({"role": "assistant", "content": blocks})

    def add_call(self, call: ToolCall) -> None:
        """A call as if the model had made it."""
        block: Block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}
        self._grown += size([block])
        self.messages.append({"role": "assistant", "content": [block]})

    def make_room(self, limits: PromptLimits | None) -> None:
        """Compact the history before the prompt is too long or costs a multiple."""
        tokens = round(self.length * self._tokens_per_character)
        if limits is not None and len(self.messages) > 1 and tokens > limits.maximum:
            self.compact(limits.target / tokens, f"about {tokens} tokens of at most {limits.maximum}")

    def compact(self, share: float, why: str) -> bool:
        """Compact the history to this share of its length. Returns whether it is shorter now."""
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
        """Leave out all thinking. Returns whether there was any."""
        stripped = without_thinking(self.messages)
        if stripped == self.messages:
            return False
        self.messages, self._grown = stripped, size(stripped)
        self.transcript.write("stripped", why=why)
        return True

    def calibrate(self, request: Request, answer: Answer) -> None:
        """Learn from an answer how many tokens a character takes."""
        if prompt := answer.usage.prompt:
            self._tokens_per_character = prompt / max(1, characters(request))

    def tail(self) -> str:
        """The last message of each side, without our own texts to the model."""
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
