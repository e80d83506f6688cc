"""What the simulated model reads of a request that keeps the rules."""

from dataclasses import dataclass
from typing import Any

from agents.simulated.rules.prompt import as_blocks


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
