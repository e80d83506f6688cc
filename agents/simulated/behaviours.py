"""What a simulated worker can be told to do: shapes only. How each is played is not known here."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

StopReason = Literal[
    "tool_use", "end_turn", "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded", "out_of_the_blue"
]
"""Why an answer ends; the last one is a reason that no client knows."""


class ScriptShape(BaseModel):
    """A part of a script: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Pace(ScriptShape):
    """How long a turn takes. Jitter comes from the script's seed, so that the same script keeps the same time."""

    think_s: float = Field(default=0.0, ge=0, le=3600)
    jitter: float = Field(default=0.0, ge=0, le=1, description="The share of think_s by which a turn may differ.")


class Says(ScriptShape):
    """What a worker reports at its end."""

    summary: str = ""
    result: dict[str, JsonValue] = {}
    recommendations: tuple[str, ...] = ()
    discovered: tuple[str, ...] = ()


class Reading(ScriptShape):
    """What all workers may do first."""

    turns: int = Field(default=0, ge=0, le=100, description="Turns spent looking around before anything else.")
    says: Says = Says()


class Solve(Reading):
    """Write the files, run the acceptance commands, look at how they ended, report."""

    do: Literal["solve"] = "solve"
    files: dict[str, str] = Field(min_length=1)
    through: Literal["editor", "bash"] = "editor"


class Wrong(Reading):
    """Write files that do not do it, and report done without noticing."""

    do: Literal["wrong"] = "wrong"
    files: dict[str, str] = Field(min_length=1)
    through: Literal["editor", "bash"] = "editor"


class Stray(Reading):
    """Solve it, and change files on the way that were not its to change."""

    do: Literal["stray"] = "stray"
    files: dict[str, str] = {}
    outside: dict[str, str] = Field(min_length=1)
    through: Literal["editor", "bash"] = "editor"


class Shell(Reading):
    """Run any commands, then report done whatever they said."""

    do: Literal["shell"] = "shell"
    commands: tuple[str, ...] = Field(min_length=1)


class Fetch(Reading):
    """Fetch addresses into files, then report done, or failed with what a host said."""

    do: Literal["fetch"] = "fetch"
    files: dict[str, str] = Field(min_length=1)
    """The address of each file."""


class Claim(Reading):
    """Report done without doing anything."""

    do: Literal["claim"] = "claim"


class TooComplex(Reading):
    """Give up: too large for one worker."""

    do: Literal["too_complex"] = "too_complex"
    message: str = "This is more than one worker can hold together; split it."


class Ask(Reading):
    """Stop for want of information."""

    do: Literal["ask"] = "ask"
    needs: tuple[str, ...] = Field(min_length=1)


class Fail(Reading):
    """Report failure."""

    do: Literal["fail"] = "fail"
    kind: Literal["too_complex", "ambiguous", "tool", "environment", "conflict", "other"] = "other"
    message: str = "It did not work."


class Troubled(ScriptShape):
    """What goes wrong with the call itself: `times` times at turn `turn`, then the worker goes on as `then`."""

    times: int = Field(default=1, ge=1)
    turn: int = Field(default=0, ge=0)
    then: "Behaviour | None" = None


class Http(Troubled):
    """An error of the service."""

    do: Literal["http"] = "http"
    status: int = Field(default=529, ge=200, le=599)
    retry_after: float | None = Field(default=None, ge=0)
    message: str = "Overloaded"
    headers: dict[str, str] = {}
    """More headers; they count before `retry_after`."""
    body: str | None = None
    """What stands there instead of an error in the service's shape: a proxy's page, or nothing at all."""


class BreakStream(Troubled):
    """The stream ends in the middle: cleanly, by a reset, or with an error event."""

    do: Literal["break_stream"] = "break_stream"
    how: Literal["end", "reset", "error"] = "reset"


class Hang(Troubled):
    """The request stays open for `seconds`: without a byte, or with pings only. Then the answer comes."""

    do: Literal["hang"] = "hang"
    seconds: float = Field(default=60.0, ge=0)
    pings: bool = False


class Malformed(Troubled):
    """A tool call that is none: broken JSON, an input against the schema, or a tool that does not exist."""

    do: Literal["malformed"] = "malformed"
    how: Literal["json", "schema", "tool"] = "json"


class Mute(Troubled):
    """A turn that calls no tool."""

    do: Literal["mute"] = "mute"
    stop_reason: StopReason = "end_turn"
    text: str = "I believe that is everything."
    """Empty: an answer without content."""


class Until(ScriptShape):
    """`meanwhile`, until an attempt differs in the way that is named; then `then`. All that is given must be so."""

    do: Literal["until"] = "until"
    guided: str | None = None
    """The attempt's guidance holds this text."""
    model: str | None = None
    """The attempt's model fits this pattern."""
    attempt: int | None = Field(default=None, ge=1)
    """The attempt has this number, or a higher one."""
    meanwhile: "Behaviour"
    then: "Behaviour"


Work = Solve | Wrong | Stray | Shell | Fetch | Claim | TooComplex | Ask | Fail
Trouble = Http | BreakStream | Hang | Malformed | Mute
Behaviour = Annotated[Work | Trouble | Until, Field(discriminator="do")]

for _shape in (Until, Troubled, Http, BreakStream, Hang, Malformed, Mute):
    _shape.model_rebuild()
