"""What the simulated model answers: a message, and what happens to it on its way. HTTP is not known here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from pydantic import JsonValue

from agents.simulated.behaviours import BreakStream, Fault, Hang, Http, Malformed, Mute, Pace, StopReason

FaultKey = tuple[str, str, int, int]
"""Identifies an injected fault: run, subtask (or planner), index of the behaviour, depth within it."""
TimesStruck = Callable[[FaultKey], int]
"""How often a fault has struck so far."""
WireFault = Http | BreakStream | Hang


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    id: str
    name: str
    input: dict[str, JsonValue]
    broken: str | None = None
    """JSON text that is streamed instead of the input."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """Thinking, as a summary or without its text."""

    text: str
    signature: str


@dataclass(frozen=True, slots=True)
class Redacted:
    """Thinking that the service shows no one."""

    data: str


Block = Text | ToolUse | Thinking | Redacted


@dataclass(frozen=True, slots=True)
class Message:
    """A complete answer."""

    blocks: tuple[Block, ...]
    stop_reason: StopReason = "tool_use"


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer, and the fault that strikes with it."""

    message: Message
    pace: Pace | None = None
    fault: FaultKey | None = None
    wire_fault: WireFault | None = None
    """What happens to the message on its way."""


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """A tool, and inputs that it must refuse."""

    tool: str
    broken: str
    """Broken JSON."""
    misfit: dict[str, JsonValue]
    """Against its schema."""


def call(step: str, number: int, name: str, arguments: dict[str, JsonValue]) -> ToolUse:
    """A tool call whose id names its step, and which of these it is: the simulated model has no other memory."""
    return ToolUse(f"toolu_simulated_{step}_{number}", name, arguments)


def strike(
    fault: Fault, key: FaultKey, intended: Message, invalid: InvalidCall, *, pace: Pace | None, times_struck: int
) -> Turn:
    """The turn in which a fault strikes an intended answer."""
    id_ = f"toolu_simulated_malformed-{times_struck}"  # names no step, so the call does not count as one
    match fault:
        case Http() | BreakStream() | Hang():
            return Turn(intended, pace, key, fault)
        case Mute():
            message = Message((Text(fault.text),) if fault.text else (), fault.stop_reason)
        case Malformed(how="json"):
            message = Message((ToolUse(id_, invalid.tool, {}, broken=invalid.broken),))
        case Malformed(how="schema"):
            message = Message((ToolUse(id_, invalid.tool, invalid.misfit),))
        case Malformed():
            message = Message((ToolUse(id_, "launch_rocket", {"to": "moon"}),))
        case _:
            assert_never(fault)
    return Turn(message, pace, key)
