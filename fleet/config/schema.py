"""The schema of the configuration: every section and key, its type and its bounds. The defaults are in `config.toml`.

One frozen tree. Unknown keys are errors. A key whose default is None or `{}` has no default. `load.py` reads files,
flags and the environment, and `fleet/app/wiring.py` makes the settings of the adapters.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, TypeVar, get_args

from pydantic import AfterValidator, Field

from fleet.core.base.ids import is_slug
from fleet.core.plans.limits import HERE, MachineOffer, Machines, Policy, ReviewRules
from fleet.core.plans.plan import PLANNER, Criterion, Risk
from fleet.ports.settings import (
    BoxSection,
    ChecksSection,
    DailyHours,
    GitSection,
    Line,
    Models,
    PlannerSection,
    Section,
    Texts,
    WorkerSection,
    WorktreesSection,
)

Kind = TypeVar("Kind", bound=Section)


def _worker_name(text: str) -> str:
    if not is_slug(text):
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores")
    if text == PLANNER:
        raise ValueError("is reserved for the planner of an area")
    return text


class Run(Section):
    workers: int = Field(ge=1, le=1000)
    not_between: DailyHours
    budget_dollars: float | None = Field(default=None, gt=0)
    budget_minutes: float | None = Field(default=None, gt=0)
    budget_tokens: int | None = Field(default=None, gt=0)
    budget_attempts: int | None = Field(default=None, gt=0)
    budget_soft: float = Field(gt=0, le=1)
    flat: bool
    review: bool


class ReviewSection(Section):
    max_risk: Risk
    paths: Texts
    workers: Texts
    max_dollars: float | None = Field(default=None, gt=0)


class LimitsSection(Section):
    attempts: int = Field(ge=1, le=50)
    subtask_dollars: float | None = Field(default=None, gt=0)
    subtask_minutes: float | None = Field(default=None, gt=0)
    subtask_tokens: int | None = Field(default=None, gt=0)
    retries: int = Field(ge=0, le=100)
    depth: int = Field(ge=0, le=10)
    backoff_first_s: float = Field(gt=0)
    backoff_cap_s: float = Field(gt=0)
    answer_wait_minutes: float = Field(ge=0)
    drain_minutes: float = Field(ge=0)


class LandingSection(Section):
    batch: int = Field(ge=1, le=500)
    slots: int = Field(ge=1, le=64)
    every_commit: bool
    every_commit_within_s: float = Field(ge=0)


class State(Section):
    dir: Line
    max_gb: float = Field(ge=0)


class Config(Section):
    """The sections of the core program. `layer.py` adds those of features."""

    run: Run
    review: ReviewSection
    planner: PlannerSection
    limits: LimitsSection
    landing: LandingSection
    models: Models
    workers: dict[Annotated[str, AfterValidator(_worker_name)], WorkerSection]
    checks: ChecksSection
    box: BoxSection
    worktrees: WorktreesSection
    git: GitSection
    state: State

    def is_set(self, key: str) -> bool:
        """Whether the value of a key such as `traces.otlp` is neither empty nor false."""
        return bool(reduce(getattr, key.split("."), self))

    def of(self, kind: type[Kind]) -> Kind:
        """The section of a feature."""
        return next(found for name in type(self).model_fields if isinstance(found := getattr(self, name), kind))

    def named(self, kind: type[Kind]) -> dict[str, Kind]:
        """The named sections of a feature, such as `[nodes.NAME]`."""
        fields = type(self).model_fields.items()
        found: dict[str, Kind] = next(getattr(self, at) for at, info in fields if kind in get_args(info.annotation))
        return found


def as_policy(config: Config) -> Policy:
    """The limits and choices that a run records when it starts."""
    limits, planner, checks, models = config.limits, config.planner, config.checks, config.models
    return Policy(
        **config.run.model_dump(exclude={"not_between"}),
        **config.landing.model_dump(),
        rules=ReviewRules.model_validate(config.review.model_dump()),
        ladders={name: worker.models for name, worker in config.workers.items() if len(worker.models) > 1},
        programs=_of_kind(config, "command"),
        by_turns=_of_kind(config, "acp"),
        subtask_dollars=limits.subtask_dollars,
        subtask_minutes=limits.subtask_minutes,
        subtask_tokens=limits.subtask_tokens,
        max_attempts=limits.attempts,
        max_retries=limits.retries,
        max_depth=limits.depth,
        backoff_first_s=limits.backoff_first_s,
        backoff_cap_s=limits.backoff_cap_s,
        answer_wait_s=limits.answer_wait_minutes * 60,
        drain_s=limits.drain_minutes * 60,
        max_subtasks=planner.max_subtasks,
        max_areas=planner.max_areas,
        area_depth=planner.area_depth,
        max_planner_calls=planner.max_calls,
        max_planner_failures=planner.max_failures,
        settle_s=planner.settle_s,
        reruns=checks.reruns,
        check_base=bool(checks.gate.strip() or config.worktrees.setup.strip()),
        allow_red_base=checks.allow_red_base,
        service_wait_s=models.ask_after_minutes * 60,
        service_lost_s=models.give_up_after_minutes * 60,
    )


def _of_kind(config: Config, kind: str) -> tuple[str, ...]:
    return tuple(name for name, worker in config.workers.items() if worker.kind == kind)


# ---- gate ------------------------------------------------------------------------------------------------------------
# The project's gate as a check.


GATE = "gate"
"""The name in `[checks.tests]`."""


def gate_of(checks: ChecksSection) -> Criterion:
    """The gate as a criterion. An empty command means that there is no gate."""
    return Criterion(
        criterion="the project's gate",
        run=checks.gate,
        timeout_s=checks.gate_timeout_s,
        fails_before=False,
        tests=checks.tests.get(GATE),
    )


# ---- machines --------------------------------------------------------------------------------------------------------
# The machines of a run with their capabilities, and the labels that workers require.


def machines_of(config: Config, others: Mapping[str, MachineOffer]) -> Machines:
    """All machines that may work for a run with this configuration, including this one."""
    return Machines(
        offers={HERE: MachineOffer(labels=config.box.labels, lands=True), **others},
        workers={name: worker.labels for name, worker in config.workers.items() if worker.labels},
        stays=tuple(stays_here(config)),
    )


def stays_here(config: Config) -> Mapping[str, str]:
    """The reason why a worker can't run on nodes, by worker."""
    reasons = {}
    for name, worker in config.workers.items():
        if worker.hosts:
            reasons[name] = "it fetches from hosts through this machine"
        elif worker.mcp:
            reasons[name] = f"this machine calls the tools of {', '.join(worker.mcp)}"
        elif worker.pass_environment:
            reasons[name] = f"it gets {', '.join(worker.pass_environment)} from this machine's environment"
    return reasons
