"""What a simulated worker can do, as the script describes it. How it is played is not known here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, JsonValue

StopReason = Literal[
    "tool_use", "end_turn", "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded", "out_of_the_blue"
]
"""Why an answer ends; no client knows the last of these reasons."""


class ScriptShape(BaseModel):
    """A part of a script. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Pace(ScriptShape):
    """How long a turn takes. Jitter comes from the script's seed, so that a script always takes the same time."""

    think_s: float = Field(default=0.0, ge=0, le=3600)
    jitter: float = Field(default=0.0, ge=0, le=1, description="The share of think_s by which a turn may differ.")


class ReportTexts(ScriptShape):
    """The texts of a worker's report."""

    summary: str = ""
    result: dict[str, JsonValue] = {}
    recommendations: tuple[str, ...] = ()
    discovered: tuple[str, ...] = ()


class Call(ScriptShape):
    """One call of a tool."""

    tool: str
    input: dict[str, JsonValue] = Field(default={})


class WorkBehaviour(ScriptShape):
    """What all workers can do first."""

    turns: int = Field(default=0, ge=0, le=100, description="Turns spent looking around before anything else.")
    calls: tuple[Call, ...] = ()
    """Tools that are called next, one a turn, whatever they answer."""
    says: ReportTexts = ReportTexts()


class WritingBehaviour(WorkBehaviour):
    """What all workers that write files share."""

    files: dict[str, str] = Field(min_length=1)
    through: Literal["editor", "bash"] = "editor"


class Solve(WritingBehaviour):
    """Write the files, run the acceptance commands, check their exit codes, report."""

    do: Literal["solve"] = "solve"


class Wrong(WritingBehaviour):
    """Write files that don't reach the goal, and report done without noticing."""

    do: Literal["wrong"] = "wrong"


class Stray(WritingBehaviour):
    """Solve it, and change files out of bounds on the way."""

    do: Literal["stray"] = "stray"
    files: dict[str, str] = {}
    outside: dict[str, str] = Field(min_length=1)


class Shell(WorkBehaviour):
    """Run any commands, then report done regardless of their results."""

    do: Literal["shell"] = "shell"
    commands: tuple[str, ...] = Field(min_length=1)


class Fetch(WorkBehaviour):
    """Fetch addresses into files, then report done, or failed with the host's answer."""

    do: Literal["fetch"] = "fetch"
    files: dict[str, str] = Field(min_length=1)
    """The address of each file."""


class Claim(WorkBehaviour):
    """Report done without doing anything."""

    do: Literal["claim"] = "claim"


class TooComplex(WorkBehaviour):
    """Give up, because the subtask is too large for one worker."""

    do: Literal["too_complex"] = "too_complex"
    message: str = "This is more than one worker can hold together; split it."


class Ask(WorkBehaviour):
    """Stop because information is missing."""

    do: Literal["ask"] = "ask"
    needs: tuple[str, ...] = Field(min_length=1)


class Fail(WorkBehaviour):
    """Report failure."""

    do: Literal["fail"] = "fail"
    kind: Literal["too_complex", "ambiguous", "tool", "environment", "conflict", "other"] = "other"
    message: str = "It did not work."


class FaultBehaviour(ScriptShape):
    """A fault of the call itself: it strikes `times` times at turn `turn`, then the worker continues with `then`."""

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
    """More headers; they override `retry_after`."""
    body: str | None = None
    """The body instead of an error in the service's format: a proxy's page, or nothing at all."""


class BreakStream(FaultBehaviour):
    """The stream ends in the middle: cleanly, by a reset, or with an error event."""

    do: Literal["break_stream"] = "break_stream"
    how: Literal["end", "reset", "error"] = "reset"


class Hang(FaultBehaviour):
    """The request stays open for `seconds`: without a byte, or with pings only. Then the answer comes."""

    do: Literal["hang"] = "hang"
    seconds: float = Field(default=60.0, ge=0)
    pings: bool = False


class Malformed(FaultBehaviour):
    """An invalid tool call: broken JSON, an input that violates the schema, or an unknown tool."""

    do: Literal["malformed"] = "malformed"
    how: Literal["json", "schema", "tool"] = "json"


class Mute(FaultBehaviour):
    """A turn that calls no tool."""

    do: Literal["mute"] = "mute"
    stop_reason: StopReason = "end_turn"
    text: str = "I believe that is everything."
    """Empty: an answer without content."""


class Until(ScriptShape):
    """`meanwhile`, until an attempt meets all the conditions that are set; then `then`."""

    do: Literal["until"] = "until"
    guided: str | None = None
    """The attempt's guidance contains this text."""
    model: str | None = None
    """The attempt's model matches this pattern."""
    attempt: int | None = Field(default=None, ge=1)
    """The attempt has this number, or a higher one."""
    meanwhile: "Behaviour"
    then: "Behaviour"


Work = Solve | Wrong | Stray | Shell | Fetch | Claim | TooComplex | Ask | Fail
Fault = Http | BreakStream | Hang | Malformed | Mute
Behaviour = Annotated[Work | Fault | Until, Field(discriminator="do")]

for _shape in (Until, FaultBehaviour, Http, BreakStream, Hang, Malformed, Mute):
    _shape.model_rebuild()


# ---- replies ---------------------------------------------------------------------------------------------------------
# What the simulated model answers: a message, and what happens to it on its way. HTTP is not known here.


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
