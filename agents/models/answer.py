"""The words of a model call: what is asked, what is answered, and what can go wrong. Knows no SDK and no wire."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fleet.core.usage import Usage

Block = dict[str, Any]
"""A content block exactly as the wire has it; assistant blocks go back unchanged."""
Message = dict[str, Any]

FaultKind = Literal[
    "limit",  # too many calls or tokens for now
    "outage",  # nobody answers, or the service fails whoever asks
    "broken",  # an answer that broke off, or that makes no sense
    "refused",  # the key, its rights or the money behind it: nothing works until a human mends it
    "gone",  # there is no such model
    "configuration",  # a request that is none
    "too_long",
    "other",
]
Counted = Literal["requests", "input", "output"]


@dataclass(frozen=True, slots=True)
class Room:
    """What a service grants: so many a minute, of which so many are left now."""

    limit: float
    left: float


Headroom = Mapping[Counted, Room]
"""What a response says of the limits; empty where it says nothing."""
Begun = Callable[[Headroom], None]


def _nobody(_: Headroom) -> None:
    """Nobody waits for an answer to begin."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a model."""

    model: str
    max_tokens: int
    system: str
    tools: tuple[Block, ...]
    messages: tuple[Message, ...]
    shared: int = 0
    """Blocks at the front of the first message that other conversations begin with, too."""
    begun: Begun = field(default=_nobody, compare=False, repr=False)
    """Called when the answer begins, with what the limits leave: its cache entries can be read from then on."""
    length: int | None = field(default=None, compare=False, repr=False)
    """Its characters, where whoever made it has counted them already."""


CHARACTERS_PER_TOKEN = 3
"""A cautious guess: prose and code hold three to four characters in a token."""


def estimated_tokens(request: Request) -> int:
    """About how many tokens a request has, rather too many than too few."""
    return characters(request) // CHARACTERS_PER_TOKEN + 1


def characters(request: Request) -> int:
    if request.length is not None:
        return request.length
    return size(request.system) + size(request.tools) + size(request.messages)


def size(value: object) -> int:
    """Characters, as far as a model sees them; what is not ASCII takes more tokens than it has characters."""
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        case dict():
            return sum(len(key) + size(item) + 4 for key, item in value.items())
        case list() | tuple():
            return sum(map(size, value))
        case _:
            return 4


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model chose to call. `broken` says why its input can't be used."""

    id: str
    name: str
    input: dict[str, Any]
    broken: str | None = None

    @property
    def action(self) -> str:
        """The same text for the same action, whatever its id and the order of its keys."""
        return f"{self.name} {json.dumps(self.input, sort_keys=True, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer: the stream ran to its end. Its stop reason may still say that it is of no use."""

    blocks: tuple[Block, ...]
    stop_reason: str | None
    usage: Usage
    model: str
    request_id: str | None = None
    seconds: float = 0.0
    broken: dict[str, str] = field(default_factory=dict)
    """Tool calls whose input is no JSON object, by their id, each with the reason."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(block["id"], block["name"], block["input"], self.broken.get(block["id"]))
            for block in self.blocks
            if block["type"] == "tool_use"
        )

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.blocks if block["type"] == "text" and block.get("text"))


@dataclass(frozen=True, slots=True)
class CallFault:
    """A call without a usable answer."""

    kind: FaultKind
    message: str
    status: int | None = None
    """The status of HTTP; None where there was no response."""
    retry_after_s: float | None = None
    """What the server asked for."""
    headroom: Headroom = field(default_factory=dict)
    usage: Usage | None = None
    """What was used up all the same."""
    request_id: str | None = None
    seconds: float = 0.0


class Model(Protocol):
    """Whoever answers requests."""

    async def ask(self, request: Request) -> Answer | CallFault: ...
