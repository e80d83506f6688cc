"""The behaviors of a simulated worker in a script."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, JsonValue

StopReason = Literal[
    "tool_use", "end_turn", "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded", "out_of_the_blue"
]
"""Stop reasons of answers. The last one is unknown to clients."""


class ScriptShape(BaseModel):
    """A part of a script. Unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Pace(ScriptShape):
    """The duration of a turn. Jitter is derived from the script's seed, so that a script always takes the same time."""

    think_s: float = Field(default=0.0, ge=0, le=3600)
    jitter: float = Field(default=0.0, ge=0, le=1, description="The share of think_s by which a turn may differ.")


class ReportTexts(ScriptShape):
    """The texts of a worker's report."""

    summary: str = ""
    result: dict[str, JsonValue] = {}
    recommendations: tuple[str, ...] = ()
    discovered: tuple[str, ...] = ()


class ToolCallStep(ScriptShape):
    """A tool call."""

    tool: str
    input: dict[str, JsonValue] = Field(default={})


class WorkBehaviour(ScriptShape):
    """The first turns of all behaviors."""

    turns: int = Field(default=0, ge=0, le=100, description="Turns spent exploring before anything else.")
    calls: tuple[ToolCallStep, ...] = ()
    """Tools to call next, one per turn, regardless of their results."""
    says: ReportTexts = ReportTexts()


class WritingBehaviour(WorkBehaviour):
    """Shared settings of behaviors that write files."""

    files: dict[str, str] = Field(min_length=1)
    through: Literal["editor", "bash"] = "editor"


class Solve(WritingBehaviour):
    """Write the files, run the acceptance commands, check their exit codes, report."""

    do: Literal["solve"] = "solve"


class WrongResult(WritingBehaviour):
    """Write files that don't reach the goal, and report done."""

    do: Literal["wrong"] = "wrong"


class OutOfBounds(WritingBehaviour):
    """Solve the subtask, but also change files out of bounds."""

    do: Literal["stray"] = "stray"
    files: dict[str, str] = {}
    outside: dict[str, str] = Field(min_length=1)


class Shell(WorkBehaviour):
    """Run commands, then report done regardless of their results."""

    do: Literal["shell"] = "shell"
    commands: tuple[str, ...] = Field(min_length=1)


class FetchStep(WorkBehaviour):
    """Fetch addresses into files, then report done, or failed with the host's answer."""

    do: Literal["fetch"] = "fetch"
    files: dict[str, str] = Field(min_length=1)
    """The address of each file."""


class FalseClaim(WorkBehaviour):
    """Report done without doing anything."""

    do: Literal["claim"] = "claim"


class TooComplex(WorkBehaviour):
    """Give up, because the subtask is too large for one worker."""

    do: Literal["too_complex"] = "too_complex"
    message: str = "This is too much for one worker. Split it."


class AskBehaviour(WorkBehaviour):
    """Stop because information is missing."""

    do: Literal["ask"] = "ask"
    needs: tuple[str, ...] = Field(min_length=1)


class Fail(WorkBehaviour):
    """Report failure."""

    do: Literal["fail"] = "fail"
    kind: Literal["too_complex", "ambiguous", "tool", "environment", "conflict", "other"] = "other"
    message: str = "It did not work."


class FaultBehaviour(ScriptShape):
    """A fault of a call: it occurs `times` times at turn `turn`, then the worker continues with `then`."""

    times: int = Field(default=1, ge=1)
    turn: int = Field(default=0, ge=0)
    then: "Behaviour | None" = None


class Http(FaultBehaviour):
    """An error of the service."""

    do: Literal["http"] = "http"
    status: int = Field(default=529, ge=200, le=599)
    retry_after: float | None = Field(default=None, ge=0)
    message: str = "Overloaded"
    headers: dict[str, str] = {}
    """Additional headers, which override `retry_after`."""
    body: str | None = None
    """The body, instead of an error in the service's format: a proxy's page, or an empty body."""


class BreakStream(FaultBehaviour):
    """The stream ends in the middle: cleanly, by a reset, or with an error event."""

    do: Literal["break_stream"] = "break_stream"
    how: Literal["end", "reset", "error"] = "reset"


class Hang(FaultBehaviour):
    """The request stays open for `seconds`, without data or with pings only. Then the answer is sent."""

    do: Literal["hang"] = "hang"
    seconds: float = Field(default=60.0, ge=0)
    pings: bool = False


class Malformed(FaultBehaviour):
    """An invalid tool call: broken JSON, an input that violates the schema, or an unknown tool."""

    do: Literal["malformed"] = "malformed"
    how: Literal["json", "schema", "tool"] = "json"


class NoToolCall(FaultBehaviour):
    """A turn without a tool call."""

    do: Literal["mute"] = "mute"
    stop_reason: StopReason = "end_turn"
    text: str = "I believe that is everything."
    """The text; empty for an answer without content."""


class Until(ScriptShape):
    """`meanwhile`, until an attempt meets all conditions; then `then`."""

    do: Literal["until"] = "until"
    guided: str | None = None
    """The attempt's guidance contains this text."""
    model: str | None = None
    """The attempt's model matches this pattern."""
    attempt: int | None = Field(default=None, ge=1)
    """The attempt has at least this number."""
    meanwhile: "Behaviour"
    then: "Behaviour"


Work = Solve | WrongResult | OutOfBounds | Shell | FetchStep | FalseClaim | TooComplex | AskBehaviour | Fail
Fault = Http | BreakStream | Hang | Malformed | NoToolCall
Behaviour = Annotated[Work | Fault | Until, Field(discriminator="do")]

for _shape in (Until, FaultBehaviour, Http, BreakStream, Hang, Malformed, NoToolCall):
    _shape.model_rebuild()


# ---- replies ---------------------------------------------------------------------------------------------------------
# Answers of the simulated model: a message, and faults during its transfer. Independent of HTTP.


FaultKey = tuple[str, str, int, int]
"""Identifies an injected fault: run, subtask (or planner), index of the behavior, depth within it."""
TimesStruck = Callable[[FaultKey], int]
"""Returns how often a fault has occurred."""
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
    """JSON text to stream instead of the input."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """Thinking with a summary, or without text."""

    text: str
    signature: str


@dataclass(frozen=True, slots=True)
class Redacted:
    """Thinking that the service does not show."""

    data: str


Block = Text | ToolUse | Thinking | Redacted


@dataclass(frozen=True, slots=True)
class BehaviourMessage:
    """A complete answer."""

    blocks: tuple[Block, ...]
    stop_reason: StopReason = "tool_use"


@dataclass(frozen=True, slots=True)
class BehaviourTurn:
    """An answer and its fault."""

    message: BehaviourMessage
    pace: Pace | None = None
    fault: FaultKey | None = None
    wire_fault: WireFault | None = None
    """The fault during the transfer of the message."""


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """A tool, and inputs that it must reject."""

    tool: str
    broken: str
    """Broken JSON."""
    misfit: dict[str, JsonValue]
    """Input that violates the schema."""


def call(step: str, number: int, name: str, arguments: dict[str, JsonValue]) -> ToolUse:
    """Return a tool call whose id contains its step and number, because the simulated model is stateless."""
    return ToolUse(f"toolu_simulated_{step}_{number}", name, arguments)


def strike(
    fault: Fault,
    key: FaultKey,
    intended: BehaviourMessage,
    invalid: InvalidCall,
    *,
    pace: Pace | None,
    times_struck: int,
) -> BehaviourTurn:
    """Return the turn in which a fault affects an intended answer."""
    id_ = f"toolu_simulated_malformed-{times_struck}"  # without a step, so that the call is not counted
    match fault:
        case Http() | BreakStream() | Hang():
            return BehaviourTurn(intended, pace, key, fault)
        case NoToolCall():
            message = BehaviourMessage((Text(fault.text),) if fault.text else (), fault.stop_reason)
        case Malformed(how="json"):
            message = BehaviourMessage((ToolUse(id_, invalid.tool, {}, broken=invalid.broken),))
        case Malformed(how="schema"):
            message = BehaviourMessage((ToolUse(id_, invalid.tool, invalid.misfit),))
        case Malformed():
            message = BehaviourMessage((ToolUse(id_, "launch_rocket", {"to": "moon"}),))
        case _:
            assert_never(fault)
    return BehaviourTurn(message, pace, key)
