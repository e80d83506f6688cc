"""The plan: subtasks with criteria that a machine can check. Public format of `fleet plan` and `fleet run --plan`.

This module only defines the format. `revision.py` validates a plan as a whole.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, JsonValue, model_validator
from pydantic.json_schema import SkipJsonSchema

from fleet.core.base.ids import SubtaskId

Risk = Literal["low", "medium", "high"]
FailureAction = Literal["replan", "retry", "skip", "abort", "ask"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
"""Reasoning effort of a model, with the names of the model service."""

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._=/-]{0,62}$")]
"""Property of a machine, such as `gpu` or `arch=arm64`."""


def _results_file(value: str) -> str:
    """Raises `ValueError` unless it names files of the repository."""
    path = value.partition(":")[2]
    if ".." in path.split("/"):
        raise ValueError("names files outside of the repository")
    return value


ResultsFile = Annotated[str, Field(pattern=r"^(?:junit|sarif):[\w.@+*?][\w.@+*?/-]*$"), AfterValidator(_results_file)]
"""Format and location of a command's results: `junit:build/reports/*.xml`, `sarif:lint.sarif`."""
MOST_VOTES = 9
WORKER_SUCCEEDED = "worker_succeeded"
"""Named check of a step whose exit code is the only criterion."""
PLANNER = "planner"
"""Worker of an area, which is a subtask with a separate planner."""


class FrozenModel(BaseModel):
    """A frozen value in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def rename_keys(data: Any, renamed: Mapping[str, str]) -> Any:
    """Give keys from early journals their current names."""
    if not isinstance(data, Mapping) or not renamed.keys() & data.keys():
        return data
    return {renamed.get(name, name): value for name, value in data.items()}


class Written(FrozenModel):
    """A value that a person or a model writes: a field that is null counts as left out."""

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


class Planned(Written):
    """A part of a plan, of which a journal may hold 10,000.

    JSON text is only ever read from a journal, where each field is as it was when its fact was recorded. So it needs no
    look for nulls, which took more than half of the time of reading such a plan.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        model: Any = handler(source)
        written = model["schema"]
        if written["type"] != "function-before":
            return model
        return {
            **model,
            "schema": {"type": "json-or-python", "json_schema": written["schema"], "python_schema": written},
        }


class Criterion(Planned):
    """One acceptance check: a command, the name of one in the configuration (`[checks.named]`), or a review."""

    criterion: str = Field(description="The condition that this proves, in words.")
    run: str | None = Field(default=None, description="The shell command that proves it, run at the repository's root.")
    timeout_s: float = Field(default=300, gt=0, le=7200, description="Seconds until it counts as failed.")
    fails_before: bool = Field(
        default=True,
        description="True: must fail before the work is done. False: a guard that must pass before and after.",
    )
    tests: SkipJsonSchema[ResultsFile | None] = (
        None  # a planner names checks, and the configuration has their results files
    )
    """The files that its command leaves results in: `junit:reports/*.xml`, or `sarif:lint.sarif` of an analyser."""
    review: SkipJsonSchema[str | None] = None  # a person decides what is worth a review
    """Faults that a model looks for in the change, instead of a command. The model must not have made the change."""
    model: SkipJsonSchema[str | None] = None
    """The model that reviews, instead of the configured one (`reviewer.model`)."""
    votes: SkipJsonSchema[int | None] = Field(default=None, ge=1, le=MOST_VOTES)
    """Number of independent reviews (`reviewer.votes`)."""
    threshold: SkipJsonSchema[int | None] = Field(default=None, ge=1, le=MOST_VOTES)
    """Number of reviews that must have no findings. Default: more than half of the votes."""

    @property
    def shown(self) -> str:
        """Return the command or review in a form for humans and planners."""
        return f"review: {self.review}" if self.review is not None else self.run or self.criterion


class Estimate(Planned):
    """The planner's estimate of a subtask's size."""

    minutes: float | None = Field(default=None, ge=0)
    """Expected time of a worker. The expected time of the plan is calculated from these."""
    lines: int | None = Field(default=None, ge=0)
    """Expected number of changed lines. Very few or very many cause a warning."""
    dollars: float | None = Field(default=None, ge=0, description="The most an area may cost.")


class Subtask(Planned):
    """One bounded piece of work for one worker."""

    id: SubtaskId = Field(description="A short name: letters, digits, dots, dashes, underscores.")
    title: str = Field(description="One line, used as the subject of the commit.")
    goal: str = Field(description="The change to build, in words a stranger can act on.")
    acceptance: tuple[Criterion, ...] = Field(description="Checks that fail before the work and pass after it.")
    depends_on: tuple[SubtaskId, ...] = Field(default=(), description="Subtasks whose work must have landed first.")
    touches: tuple[str, ...] = Field(default=(), description="Patterns of the files it may change; ** crosses folders.")
    context: tuple[str, ...] = Field(default=(), description="Files the worker should read first.")
    worker: str = Field(default="coder", description="The worker kind.")
    model: str | None = Field(default=None, description="A model instead of the worker kind's own.")
    effort: Effort | None = Field(default=None, description="How hard the model tries, instead of the kind's own.")
    parameters: dict[str, JsonValue] = Field(default={}, description="Further input of the worker kind.")
    labels: SkipJsonSchema[tuple[Label, ...]] = ()  # a planner chooses a worker kind, which may ask for labels
    """Labels that the machine must have which works on it and runs its checks: `["gpu"]`."""
    risk: Risk = "low"
    """Damage that a mistake could cause. The rules of `[review]` use it."""
    estimate: Estimate = Estimate()
    """Expected size, if known."""
    failure_action: FailureAction = Field(default="replan", description="The action after a failure.")
    not_before: datetime | None = Field(default=None, description="A time before which it must not start.")

    @property
    def reviews(self) -> tuple[Criterion, ...]:
        """The criteria that other models decide."""
        return tuple(check for check in self.acceptance if check.review is not None)


class Plan(Planned):
    """All subtasks of a run, in one version."""

    plan_id: str = "plan"
    """A name for people, without further effect."""
    goal: str = ""
    """The purpose of the plan: the epic, as the planner and the report use it."""
    version: int = Field(default=0, ge=0)
    """Version of the plan, from 1 (the default). Each revision increases it."""
    subtasks: tuple[Subtask, ...] = ()
    """Subtasks in any order. `depends_on` decides which must land first."""
    rollback_plan: str | None = None
    """Name of the plan file that undoes the changes if a step fails, in the same directory or in the library."""
    risk_level: Risk = "low"
    """Risk of the plan for its review. The rules also use the `risk` of each subtask."""
    estimated_duration: str | None = None
    """In words, for its review."""

    def subtask(self, id: SubtaskId) -> Subtask | None:  # noqa: A002 - the name the document gives it
        return next((subtask for subtask in self.subtasks if subtask.id == id), None)

    @property
    def ids(self) -> tuple[SubtaskId, ...]:
        return tuple(subtask.id for subtask in self.subtasks)

    @property
    def asks_for_reviews(self) -> bool:
        """Return whether the plan needs models for reviews."""
        return any(subtask.reviews for subtask in self.subtasks)


# ---- dependencies ----------------------------------------------------------------------------------------------------
# The dependencies of subtasks as a graph: its cycles, chains and waves.


Needs = Mapping[SubtaskId, Collection[SubtaskId]]
"""The subtasks that each subtask depends on."""


def needs_of(subtasks: Iterable[Subtask]) -> Needs:
    return {subtask.id: subtask.depends_on for subtask in subtasks}


def find_cycle(needs: Needs) -> tuple[SubtaskId, ...]:
    """Return one dependency cycle with its first id repeated at the end, or an empty tuple.

    Ignores self-dependencies.
    """
    try:
        TopologicalSorter({id_: [need for need in ids if need != id_] for id_, ids in needs.items()}).prepare()
    except CycleError as error:
        return tuple(reversed(error.args[1]))
    return ()


def ancestors(needs: Needs) -> Callable[[SubtaskId, SubtaskId], bool]:
    """Return a function that reports whether one subtask must land before another. The plan must not have cycles.

    The ancestors of each subtask are bits of a number. As sets, those of a chain of 10,000 subtasks would take
    gigabytes.
    """
    bits: dict[SubtaskId, int] = {}
    above: dict[SubtaskId, int] = {}
    for bit, id_ in enumerate(TopologicalSorter(needs).static_order()):
        bits[id_] = bit
        above[id_] = reduce(or_, (above[need] | 1 << bits[need] for need in needs.get(id_, ())), 0)
    return lambda first, second: bool(above[second] >> bits[first] & 1)


def longest_chains(needs: Needs, lengths: Mapping[SubtaskId, float] | None = None) -> dict[SubtaskId, float]:
    """The length of the longest chain that ends with each subtask, which is 1 long without `lengths`. No cycles."""
    ends: dict[SubtaskId, float] = {}
    for id_ in TopologicalSorter(needs).static_order():
        length = 1.0 if lengths is None else lengths.get(id_, 0.0)
        ends[id_] = max((ends[need] for need in needs.get(id_, ())), default=0.0) + length
    return ends


def waves(plan: Plan) -> list[list[SubtaskId]]:
    """The subtasks by the number of subtasks that must land before them, one after the other."""
    depths = longest_chains(needs_of(plan.subtasks))
    ordered: list[list[SubtaskId]] = [[] for _ in range(int(max(depths.values(), default=0)))]
    for id_ in plan.ids:
        ordered[int(depths[id_]) - 1].append(id_)
    return ordered


# ---- estimates -------------------------------------------------------------------------------------------------------
# The size of a plan by its own estimates: risks, minutes, dollars, and how many subtasks have an estimate.


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    risks: Mapping[Risk, int]
    minutes: float
    longest: float
    """Minutes of the longest chain: the time that remains with any number of workers."""
    timed: int
    """Number of subtasks with an estimate in minutes."""
    dollars: float
    priced: int
    """Number of subtasks with an estimate in dollars."""


def plan_estimate(plan: Plan) -> PlanEstimate:
    """The sums over a plan without cycles."""
    minutes = {
        subtask.id: subtask.estimate.minutes for subtask in plan.subtasks if subtask.estimate.minutes is not None
    }
    dollars = [subtask.estimate.dollars for subtask in plan.subtasks if subtask.estimate.dollars is not None]
    counts = Counter(subtask.risk for subtask in plan.subtasks)
    return PlanEstimate(
        risks={risk: counts[risk] for risk in ("low", "medium", "high") if counts[risk]},
        minutes=sum(minutes.values()),
        longest=max(longest_chains(needs_of(plan.subtasks), minutes).values(), default=0.0),
        timed=len(minutes),
        dollars=sum(dollars),
        priced=len(dollars),
    )
