"""The script of a simulated model. Unknown keys are reported with their path.

Independent of HTTP and of how a behavior is played.
"""

import math
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from agents.simulated.behaviours import Behaviour, Fail, Fault, Pace, ScriptShape, ToolCallStep
from fleet.core.base.usage import Capability
from fleet.core.plans.parameters import parse
from fleet.core.plans.revision import Revision
from fleet.errors import UsageError

UNSCRIPTED = Fail(message="The script of the simulated model does not cover this subtask.")


class When(ScriptShape):
    """The conditions of a planner step. The state must meet all of them."""

    area: str | None = None
    """An area (or a pattern) whose planner is called. Without it, the step is for the run's planner."""
    start: bool = False
    """The plan is empty."""
    merged: tuple[str, ...] = ()
    """These subtasks are merged."""
    failed: str | None = None
    """A subtask (or a pattern) is waiting for the planner's decision."""
    failures: int | None = Field(default=None, ge=0)
    """With `failed`: it failed exactly this often."""
    kind: str | None = None
    """With `failed`: the class of its last failure."""
    answered: str | None = None
    """A human answered a question about this subtask (or pattern), and it is waiting for the planner's decision."""
    rejected: str | None = None
    """A person rejected the current plan for a reason that matches this pattern. `{answer}` is the reason."""
    all_merged: bool = False
    """All subtasks are merged or dropped."""


class PlannerStep(ScriptShape):
    """A revision with its conditions. `{id}`, `{title}`, `{evidence}` and `{answer}` in its texts are filled in."""

    when: When
    revision: Revision


class PlannerScript(ScriptShape):
    explore: tuple[ToolCallStep, ...] = ()
    """Tools to call, one per turn, before the first revision. Unavailable tools are skipped."""
    steps: tuple[PlannerStep, ...] = ()
    synthesis: str = "Every subtask has landed."
    faults: tuple[Annotated[Fault, Field(discriminator="do")], ...] = ()
    """Faults of the planner's first calls in a run, in order."""
    once_planned: Annotated[Fault, Field(discriminator="do")] | None = None
    """A fault of its later calls, once the plan is not empty."""
    pace: Pace | None = None


class WorkerScript(ScriptShape):
    attempts: tuple[Behaviour, ...] = Field(min_length=1)
    """One behavior per attempt. The last one repeats."""
    pace: Pace | None = None


class AgentScript(ScriptShape):
    """An agent other than planner and worker, from another program with its own tools."""

    calls: tuple[ToolCallStep, ...] = ()
    """Tools to call, one per turn, regardless of their results."""
    says: str = "This is a simulated model. It plays planners and workers."


class ScriptedFinding(ScriptShape):
    """A fault at a line of the change, reported by the reviewer."""

    problem: str
    file: str = ""
    """The file; empty, with `text`, for any file."""
    line: int = 0
    text: str | None = None
    """Instead of `line`: the first added line that contains this text. Without such a line, the finding is omitted."""
    votes: tuple[int, ...] = ()
    """The votes with this finding; empty for all."""


class ReviewerScript(ScriptShape):
    attempts: tuple[tuple[ScriptedFinding, ...], ...] = ()
    """The findings for each attempt. The last ones repeat."""
    obeys: str = ""
    """The reviewer has no findings if the client's texts contain this text. A change must not be able to add it."""


class ServiceLimits(ScriptShape):
    """The rate limits of each family of models, reported in headers and enforced with status 429."""

    requests_per_minute: int = Field(default=1_000_000, ge=1)
    tokens_per_minute: int = Field(default=1_000_000_000, ge=1)
    """For prompts, without tokens read from the cache."""
    output_tokens_per_minute: int | None = Field(default=None, ge=1)
    """For answers; None for the same limit as for prompts."""
    burst_s: float = Field(default=60.0, gt=0, le=60)
    """The largest burst, in seconds of the rate."""
    named: bool = True
    """Whether response headers report remaining quotas."""


class FaultWindow(ScriptShape):
    """A fault of a share of all calls within a window of time or calls, relative to the first call."""

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
    """The available models; None for the newest opus, sonnet and haiku."""
    api_key: str | None = None
    """The valid key; None for any."""
    lacks: tuple[Capability, ...] = ()
    """Capabilities that the service lacks. It rejects requests that use them."""
    terse: bool = False
    """Whether such an error does not name the rejected field."""
    limits: ServiceLimits = ServiceLimits()
    weather: tuple[FaultWindow, ...] = ()
    """Windows in which calls fail."""
    cache_minimum_tokens: int | None = Field(default=None, ge=0)
    """The minimum length of a cached prefix; None for the model's value."""
    thinking_tokens: int = Field(default=40, ge=0)
    """The length of thinking at medium effort, in addition to its summary."""
    clock_speed: float = Field(default=1.0, gt=0)
    """The speed of the service's clock: at 3600, one-hour cache entries expire after a second."""
    planner: PlannerScript = PlannerScript()
    workers: dict[str, WorkerScript] = Field(default={})
    """Workers by subtask id or pattern: ids first, then patterns in order."""
    reviewers: dict[str, ReviewerScript] = Field(default={})
    """Reviewers by subtask id or pattern. Without a match, the change passes."""
    batch_asks: int = Field(default=0, ge=0)
    """How often a batch is reported as unfinished."""
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
    """Parse a script. Raises `UsageError` with every problem and its path."""
    script = parse(Script, data, at="")
    if isinstance(script, Script):
        return script
    problems = "".join(f"\n  {problem}" for problem in script)
    raise UsageError(f"{source} is not a valid script for a simulated model:{problems}")
