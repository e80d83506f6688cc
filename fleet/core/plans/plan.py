"""The plan: subtasks with criteria a machine can check. The public document of `fleet plan` and `fleet run --plan`.

These are shapes only; whether a plan holds together is `validate.py`'s question, so that it can name every problem.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from fleet.core.ids import SubtaskId

Risk = Literal["low", "medium", "high"]
FailureAction = Literal["replan", "retry", "skip", "abort", "ask"]

WORKER_SUCCEEDED = "worker_succeeded"
"""The named check of a step whose own exit code is the whole criterion."""


PLANNER = "planner"
"""The worker of an area: a subtask that a planner of its own breaks down."""


class Shape(BaseModel):
    """A frozen value in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Written(Shape):
    """What a person or a model writes: a field that is null is one that was left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = cls.model_fields
        return {
            name: value
            for name, value in data.items()
            if value is not None or name not in fields or fields[name].is_required()
        }


class Criterion(Written):
    """One acceptance check: a command, or the name of one in the configuration (`[checks.named]`)."""

    criterion: str = Field(description="What is true when this passes, in words.")
    run: str | None = Field(default=None, description="The shell command that proves it, run at the repository's root.")
    timeout_s: float = Field(default=300, gt=0, le=7200, description="Seconds until it counts as failed.")
    fails_before: bool = Field(
        default=True,
        description="True: must fail before the work is done. False: a guard that must pass before and after.",
    )


class Estimate(Written):
    """How large the planner thinks a subtask is."""

    minutes: float | None = Field(default=None, ge=0)
    """How long a worker should need; the time of the whole plan is reckoned from these."""
    lines: int | None = Field(default=None, ge=0)
    """How many lines should change. Very few or very many are a warning."""
    dollars: float | None = Field(default=None, ge=0, description="Of an area: what it may cost.")


class Subtask(Written):
    """One bounded piece of work for one worker."""

    id: SubtaskId = Field(description="A short name: letters, digits, dots, dashes, underscores.")
    title: str = Field(description="One line; it becomes the subject of the commit.")
    goal: str = Field(description="What to build, in words a stranger can act on.")
    acceptance: tuple[Criterion, ...] = Field(description="Checks that fail before the work and pass after it.")
    depends_on: tuple[SubtaskId, ...] = Field(default=(), description="Subtasks whose work must have landed first.")
    touches: tuple[str, ...] = Field(default=(), description="Patterns of the files it may change; ** crosses folders.")
    context: tuple[str, ...] = Field(default=(), description="Files the worker should read first.")
    worker: str = Field(default="coder", description="The worker kind.")
    model: str | None = Field(default=None, description="A model other than the worker kind's own.")
    parameters: dict[str, JsonValue] = Field(default={}, description="What the worker kind needs besides.")
    risk: Risk = "low"
    """What is at stake when it goes wrong; the rules of `[review]` go by it."""
    estimate: Estimate = Estimate()
    """How large it is, as far as anybody knows."""
    failure_action: FailureAction = Field(default="replan", description="What happens when it fails.")
    not_before: datetime | None = Field(default=None, description="A time before which it must not start.")


class Plan(Written):
    """All subtasks of a run, in one version."""

    plan_id: str = "plan"
    """A name for people; nothing rests on it."""
    goal: str = ""
    """What the plan is for: the epic, which the planner and the report go by."""
    version: int = Field(default=0, ge=0)
    """Which it is; a file without one is version 1, and every revision is the next."""
    subtasks: tuple[Subtask, ...] = ()
    """The order in the file means nothing; `depends_on` does."""
    rollback_plan: str | None = None
    """The plan file that undoes what was changed, when a step fails: its name, beside this one or in the library."""
    risk_level: Risk = "low"
    """Of the whole, for whoever reviews it; rules weigh the `risk` of each subtask."""
    estimated_duration: str | None = None
    """For whoever reviews it, in words."""

    def subtask(self, id: SubtaskId) -> Subtask | None:  # noqa: A002 - the name the document gives it
        return next((subtask for subtask in self.subtasks if subtask.id == id), None)

    @property
    def ids(self) -> tuple[SubtaskId, ...]:
        return tuple(subtask.id for subtask in self.subtasks)
