"""The script of a simulated model. Unknown keys are errors that name their path.

Knows nothing of HTTP, and nothing of how a behaviour is played.
"""

import math
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from agents.simulated.behaviours import Behaviour, Call, Fail, Fault, Pace, ScriptShape
from fleet.core.base.usage import Capability
from fleet.core.plans.parameters import parse
from fleet.core.plans.revision import Revision
from fleet.errors import UsageError

UNSCRIPTED = Fail(message="The script of the simulated model says nothing about this subtask.")


class When(ScriptShape):
    """When a step of the planner fires: every condition given must be true of the state."""

    area: str | None = None
    """An area (or a pattern) whose own planner is called. Without it the step is for the run's planner."""
    start: bool = False
    """Nothing is planned yet."""
    merged: tuple[str, ...] = ()
    """These subtasks are merged."""
    failed: str | None = None
    """A subtask (or a pattern) waits for the planner's decision."""
    failures: int | None = Field(default=None, ge=0)
    """With `failed`: it failed exactly this often."""
    kind: str | None = None
    """With `failed`: the class of its last failure."""
    answered: str | None = None
    """A human answered a question about this subtask (or pattern), and it waits for the planner's decision."""
    rejected: str | None = None
    """A person rejected the current plan for a reason that matches this pattern; `{answer}` is the reason."""
    all_merged: bool = False
    """Everything that is planned is merged or dropped."""


class Step(ScriptShape):
    """A revision for a situation. `{id}`, `{title}`, `{evidence}` and `{answer}` in its texts are filled in."""

    when: When
    revision: Revision


class PlannerScript(ScriptShape):
    explore: tuple[Call, ...] = ()
    """Tools to call, one per turn, before the first revision; those that are not offered are left out."""
    steps: tuple[Step, ...] = ()
    synthesis: str = "Every subtask has landed."
    faults: tuple[Annotated[Fault, Field(discriminator="do")], ...] = ()
    """Faults that the planner's first calls of a run meet, one after another."""
    once_planned: Annotated[Fault, Field(discriminator="do")] | None = None
    """A fault that its calls meet after that, once something is planned."""
    pace: Pace | None = None


class WorkerScript(ScriptShape):
    attempts: tuple[Behaviour, ...] = Field(min_length=1)
    """One behaviour per attempt; the last one repeats."""
    pace: Pace | None = None


class AgentScript(ScriptShape):
    """An agent that is neither planner nor worker: another program's, which has tools of its own."""

    calls: tuple[Call, ...] = ()
    """Tools to call, one a turn, whatever they answer."""
    says: str = "This is a simulated model; it plays planners and workers."


class ScriptedFinding(ScriptShape):
    """A fault that the reviewer names, at a line of the change."""

    problem: str
    file: str = ""
    """Empty, with `text`: any file."""
    line: int = 0
    text: str | None = None
    """Instead of `line`: the first added line that holds this text. Without one there is no such finding."""
    votes: tuple[int, ...] = ()
    """The votes that have it; empty: all."""


class ReviewerScript(ScriptShape):
    attempts: tuple[tuple[ScriptedFinding, ...], ...] = ()
    """The findings about each attempt; the last ones repeat."""
    obeys: str = ""
    """A reviewer that finds nothing if the client's own words hold this text: no text of a change may get there."""


class Limits(ScriptShape):
    """The rate limits of each family of models, as the headers report them and 429 enforces them."""

    requests_per_minute: int = Field(default=1_000_000, ge=1)
    tokens_per_minute: int = Field(default=1_000_000_000, ge=1)
    """Of prompts, without what is read from the cache."""
    output_tokens_per_minute: int | None = Field(default=None, ge=1)
    """Of answers; None: as many as of prompts."""
    burst_s: float = Field(default=60.0, gt=0, le=60)
    """This many seconds' worth may be used at once."""
    named: bool = True
    """Whether the headers of responses report what remains."""


class FaultWindow(ScriptShape):
    """A fault that a share of all calls meets within a window of time, or of calls, counted from the first call."""

    from_s: float = Field(default=0.0, ge=0)
    to_s: float = Field(default=math.inf, gt=0)
    first_call: int = Field(default=1, ge=1)
    last_call: int | None = Field(default=None, ge=1)
    status: int = Field(default=529, ge=400, le=599)
    share: float = Field(default=1.0, gt=0, le=1)
    retry_after: float | None = Field(default=None, ge=0)
    message: str = "Overloaded"


class Script(ScriptShape):
    label: str = "simulated model"
    seed: int = 0
    pace: Pace = Pace()
    models: tuple[str, ...] | None = None
    """The models that exist; None: the newest opus, sonnet and haiku."""
    api_key: str | None = None
    """The key that is accepted; None: any."""
    lacks: tuple[Capability, ...] = ()
    """What the service lacks: it refuses what asks for it."""
    terse: bool = False
    """Whether such a refusal does not name what it refuses."""
    limits: Limits = Limits()
    weather: tuple[FaultWindow, ...] = ()
    """Windows of time in which calls fail."""
    cache_minimum_tokens: int | None = Field(default=None, ge=0)
    """The shortest prefix that is cached; None: as for the model."""
    thinking_tokens: int = Field(default=40, ge=0)
    """How long the model thinks at medium effort, beside what its summary says."""
    clock_speed: float = Field(default=1.0, gt=0)
    """How fast the service's time passes: at 3600, cache entries of an hour live for a second."""
    planner: PlannerScript = PlannerScript()
    workers: dict[str, WorkerScript] = Field(default={})
    """By subtask id or pattern: ids before patterns, patterns in their order."""
    reviewers: dict[str, ReviewerScript] = Field(default={})
    """The same for those who review; without one nothing is found."""
    batch_asks: int = Field(default=0, ge=0)
    """How often a batch is said to be worked on before it has ended."""
    agent: AgentScript = AgentScript()

    def reviewer(self, subtask: str) -> ReviewerScript | None:
        if subtask in self.reviewers:
            return self.reviewers[subtask]
        return next((each for pattern, each in self.reviewers.items() if fnmatchcase(subtask, pattern)), None)

    def worker(self, subtask: str) -> WorkerScript:
        if subtask in self.workers:
            return self.workers[subtask]
        matching = (script for pattern, script in self.workers.items() if fnmatchcase(subtask, pattern))
        return next(matching, WorkerScript(attempts=(UNSCRIPTED,)))


def parse_script(data: object, *, source: str = "script") -> Script:
    """The script in `data`. Raises `UsageError` with every problem and its path."""
    script = parse(Script, data, at="")
    if isinstance(script, Script):
        return script
    problems = "".join(f"\n  {problem}" for problem in script)
    raise UsageError(f"{source} is not a script of a simulated model:{problems}")
