"""What a simulated mind does with one request: an answer, or a way of not giving one. HTTP is not known here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from agents.simulated.behaviours import Pace, StopReason

Key = tuple[str, str, int, int]
"""Whose trouble it is: run, subtask (or the planner), number of the behaviour, and how deep in it."""
Spent = Callable[[Key], int]
"""How often a trouble has struck already."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    id: str
    name: str
    input: dict[str, JsonValue]
    broken: str | None = None
    """The JSON text that is streamed instead of the input."""


@dataclass(frozen=True, slots=True)
class Say:
    """A whole answer."""

    blocks: tuple[Text | ToolUse, ...]
    stop_reason: StopReason = "tool_use"


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error with a status."""

    status: int
    message: str
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """An answer that ends in its middle."""

    say: Say
    how: Literal["end", "reset", "error"]


@dataclass(frozen=True, slots=True)
class Stall:
    """An answer that is long in coming."""

    say: Say
    seconds: float
    pings: bool


@dataclass(frozen=True, slots=True)
class Move:
    """What to answer, and which trouble it uses up once."""

    reply: Say | Refuse | Cut | Stall
    spends: Key | None = None
    pace: Pace | None = None


def call(step: str, index: int, name: str, given: dict[str, JsonValue]) -> ToolUse:
    """A tool call whose id says which step it belongs to: that is all the memory a simulated mind has."""
    return ToolUse(f"toolu_simulated_{step}_{index}", name, given)
