"""A prompt as the service sees it: its blocks in the order in which they are cached, without their marks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Lifetime = Literal["5m", "1h"]
THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of a prompt."""

    path: str
    """Where it is in the request, as errors name it."""
    role: str
    """`tools`, or the role of its message; the system prompt's is `system`."""
    type: str
    text: str
    """The same for the same content: without its cache mark, with its keys in order."""
    mark: Lifetime | None
    block: dict[str, Any]

    @property
    def is_thinking(self) -> bool:
        return self.type in THINKING


def as_blocks(content: Any) -> list[dict[str, Any]]:
    """A text is short for one block of text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def pieces_of(data: dict[str, Any]) -> list[Piece]:
    """All blocks: tools, system prompt, messages. A mark of the whole request counts as one on its last block."""
    pieces = [_piece(f"tools.{index}", "tools", block) for index, block in enumerate(data.get("tools") or ())]
    system = as_blocks(data.get("system")) if data.get("system") else []
    pieces += [_piece(f"system.{index}", "system", block) for index, block in enumerate(system)]
    for number, message in enumerate(data["messages"]):
        blocks = as_blocks(message["content"])
        at = f"messages.{number}.content"
        pieces += [_piece(f"{at}.{index}", message["role"], block) for index, block in enumerate(blocks)]
    if data.get("cache_control") and pieces:
        last = pieces[-1]
        pieces[-1] = _piece(last.path, last.role, {**last.block, "cache_control": data["cache_control"]})
    return pieces


def _piece(path: str, role: str, block: dict[str, Any]) -> Piece:
    control = block.get("cache_control")
    rest = {name: value for name, value in block.items() if name != "cache_control" and value is not None}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False)
    return Piece(path, role, str(block.get("type", "custom")), text, control and control.get("ttl", "5m"), block)


def marked(pieces: list[Piece]) -> Iterator[tuple[int, Lifetime]]:
    """The blocks that end in a mark, by their index."""
    for index, piece in enumerate(pieces):
        if piece.mark is not None:
            yield index, piece.mark


# ---- refusal ---------------------------------------------------------------------------------------------------------
# A request that the service refuses.


class RequestError(Exception):
    """The request is refused: 400, unless another status is named."""

    def __init__(self, message: str, status: int = 400, *, retry_after: float | None = None, family: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.family = family
        """The family of models whose limits the response names."""
        self.retry_after = retry_after


# ---- body ------------------------------------------------------------------------------------------------------------
# What the simulated model reads of a request that keeps the rules.


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of the conversation."""

    role: str
    blocks: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Body:
    """The request."""

    model: str
    max_tokens: int
    messages: tuple[InputMessage, ...]
    tools: tuple[dict[str, Any], ...]
    stream: bool
    system: str = ""


def read_body(data: dict[str, Any]) -> Body:
    messages = (InputMessage(message["role"], as_blocks(message["content"])) for message in data["messages"])
    tools, stream = tuple(data.get("tools") or ()), bool(data.get("stream"))
    system = "\n".join(str(block.get("text", "")) for block in as_blocks(data.get("system") or ""))
    return Body(data["model"], data["max_tokens"], tuple(messages), tools, stream, system)
