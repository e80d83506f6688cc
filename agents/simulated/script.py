"""The script of a simulated model, and the file it comes from. Unknown keys are errors that name their path.

Knows nothing of HTTP, and nothing of how a behaviour is played.
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue, ValidationError

from agents.simulated.behaviours import Behaviour, Fail, Pace, ScriptShape, Trouble
from fleet.core.nearest import did_you_mean
from fleet.core.plan import Subtask
from fleet.core.revision import Revision
from fleet.ports import UsageError

UNSCRIPTED = Fail(message="The script of the simulated model says nothing about this subtask.")


class Call(ScriptShape):
    """One call of a tool."""

    tool: str
    input: dict[str, JsonValue] = Field(default={})


class When(ScriptShape):
    """When a step of the planner fires: all that is given must be true of the state."""

    area: str | None = None
    """An area (or a pattern) whose own planner is asked. Without it the step is for the run's planner."""
    start: bool = False
    """Nothing is planned yet."""
    merged: tuple[str, ...] = ()
    """These subtasks are merged."""
    failed: str | None = None
    """A subtask (or a pattern) waits for the planner's decision."""
    failures: int | None = Field(default=None, ge=0)
    """With `failed`: it failed exactly so often."""
    kind: str | None = None
    """With `failed`: the class of its last failure."""
    answered: str | None = None
    """A human answered a question about this subtask (or pattern), and it waits for the planner's decision."""
    rejected: str | None = None
    """A person rejected the plan as it stands, for a reason that fits this pattern; `{answer}` is the reason."""
    all_merged: bool = False
    """Everything that is planned is merged or dropped."""


class Step(ScriptShape):
    """A revision for a situation. `{id}`, `{title}`, `{evidence}` and `{answer}` in its texts are filled in."""

    when: When
    revision: Revision


class PlannerScript(ScriptShape):
    explore: tuple[Call, ...] = ()
    """Tools called one a turn before the first revision; those that are not offered are left out."""
    steps: tuple[Step, ...] = ()
    synthesis: str = "Every subtask has landed."
    faults: tuple[Annotated[Trouble, Field(discriminator="do")], ...] = ()
    """What the planner's first calls of a run meet, one after another."""
    once_planned: Annotated[Trouble, Field(discriminator="do")] | None = None
    """What its calls meet from then on, when something is planned."""
    pace: Pace | None = None


class WorkerScript(ScriptShape):
    attempts: tuple[Behaviour, ...] = Field(min_length=1)
    """One behaviour an attempt; the last one repeats."""
    pace: Pace | None = None


class Limits(ScriptShape):
    """What the rate-limit headers say, and where 429 begins."""

    requests_per_minute: int = Field(default=1_000_000, ge=1)
    tokens_per_minute: int = Field(default=1_000_000_000, ge=1)
    burst_s: float = Field(default=60.0, gt=0, le=60)
    """So many seconds' worth may be taken at once."""
    named: bool = True
    """Whether responses say in their headers what is left."""


class Spell(ScriptShape):
    """A stretch of bad weather: what a share of all calls meets, whoever makes them. Counted from the first call."""

    from_s: float = Field(default=0.0, ge=0)
    to_s: float = Field(gt=0)
    status: int = Field(default=529, ge=400, le=599)
    share: float = Field(default=1.0, gt=0, le=1)
    retry_after: float | None = Field(default=None, ge=0)
    message: str = "Overloaded"


class Script(ScriptShape):
    label: str = "simulated model"
    seed: int = 0
    pace: Pace = Pace()
    models: tuple[str, ...] | None = None
    """The models there are; any, where none is listed."""
    api_key: str | None = None
    """The key that is demanded; any, where none is given."""
    limits: Limits = Limits()
    weather: tuple[Spell, ...] = ()
    """Stretches of time in which calls fail."""
    cache_minimum_tokens: int | None = Field(default=None, ge=0)
    """The shortest prefix that is cached; None: as the model's family has it."""
    planner: PlannerScript = PlannerScript()
    workers: dict[str, WorkerScript] = Field(default={})
    """By subtask id, or by pattern; an id counts before a pattern, and patterns in the order they stand."""

    def worker(self, subtask: str) -> WorkerScript:
        if subtask in self.workers:
            return self.workers[subtask]
        found = (script for pattern, script in self.workers.items() if fnmatchcase(subtask, pattern))
        return next(found, WorkerScript(attempts=(UNSCRIPTED,)))


def parse_script(data: object, *, source: str = "script") -> Script:
    """The script in `data`. Raises `UsageError` with every problem and its path."""
    try:
        return Script.model_validate(data)
    except ValidationError as error:
        paths = [problem["loc"] for problem in error.errors()]
        told = (problem for problem in error.errors() if not _follows(problem, paths))
        problems = "\n".join(f"  {_path(problem['loc'])}: {_said(problem)}" for problem in told)
        raise UsageError(f"{source} is no script of a simulated model:\n{problems}") from None


def read_json(path: Path) -> object:
    """The data in a JSON file. Raises `UsageError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is no JSON: {error}") from None


def _follows(problem: Mapping[str, Any], paths: list[tuple[int | str, ...]]) -> bool:
    """A list whose only item is wrong is reported as too short besides: that says nothing new."""
    at = problem["loc"]
    return problem["type"] == "too_short" and any(path[: len(at)] == at and path != at for path in paths)


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the document"


def _said(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        wrong = str(problem["loc"][-1])
        return f"is no field here{did_you_mean(wrong, _FIELDS)}"
    if problem["type"] == "missing":
        return "is missing"
    message = str(problem["msg"])
    return message[0].lower() + message[1:]


_FIELDS = frozenset(
    name
    for shape in (Script, PlannerScript, WorkerScript, Step, When, Call, Pace, Limits, Spell, Revision, Subtask)
    for name in shape.model_fields
)
