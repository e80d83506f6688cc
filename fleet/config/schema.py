"""The shape of the configuration: every section and key, its type and its bounds. The defaults are in `config.toml`.

One frozen tree; an unknown key is an error. A key whose default is None or `{}` has no default. Knows nothing of files,
flags or the environment (that is `load.py`), nor of adapters: `fleet/app/wiring.py` makes their settings from it.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fleet.core.base.ids import is_slug
from fleet.core.base.usage import Capability
from fleet.core.plans.limits import HERE, MachineOffer, Machines, Policy, ReviewRules, parse_rung
from fleet.core.plans.plan import MOST_VOTES, PLANNER, Criterion, Effort, Label, ResultsFile, Risk

Kind = TypeVar("Kind", bound="Section")


class Section(BaseModel):
    """A table of the configuration. Values are not converted: `"16"` is not a number."""

    refused: ClassVar[Mapping[str, str]] = {}
    """The keys that a repository may not set, each with the reason; an empty name: none of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain a line break or a control character")
    return text


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a null character")
    return text


def _worker_name(text: str) -> str:
    if not is_slug(text):
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores")
    if text == PLANNER:
        raise ValueError("is reserved in plans for the planner of an area; choose another name")
    return text


def _slug(text: str) -> str:
    if not is_slug(text):
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores")
    return text


def _rung(text: str) -> str:
    parse_rung(text)
    return " ".join(text.split())


Line = Annotated[str, AfterValidator(_one_line)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
Command = Annotated[str, AfterValidator(_command)]
Texts = Annotated[tuple[Name, ...], Field(strict=False)]
Slug = Annotated[str, AfterValidator(_slug)]
Labels = Annotated[tuple[Label, ...], Field(strict=False)]
Rungs = Annotated[tuple[Annotated[Name, AfterValidator(_rung)], ...], Field(strict=False)]
DailyHours = Annotated[Line, Field(pattern=r"^$|^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")]
Header = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
Lacking = Annotated[tuple[Capability, ...], Field(strict=False)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


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


class Review(Section):
    max_risk: Risk
    paths: Texts
    workers: Texts
    max_dollars: float | None = Field(default=None, gt=0)


class Planner(Section):
    model: Name
    effort: Effort | None = None
    horizon: int = Field(ge=1, le=1000)
    repairs: int = Field(ge=0, le=20)
    max_subtasks: int = Field(ge=1)
    max_areas: int = Field(ge=0)
    area_depth: int = Field(ge=0, le=5)
    max_calls: int = Field(ge=1)
    max_failures: int = Field(ge=1)
    settle_s: float = Field(ge=0)
    explore_turns: int = Field(ge=1, le=500)


class Limits(Section):
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


class Landing(Section):
    batch: int = Field(ge=1, le=500)
    slots: int = Field(ge=1, le=64)
    every_commit: bool
    every_commit_within_s: float = Field(ge=0)


class Price(Section):
    """Dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    cache_read: float | None = Field(default=None, ge=0)


class Models(Section):
    base_url: Annotated[Name, Field(pattern=r"^https?://[^/\s?#]+[^\s?#]*$")]
    service: Literal["api", "bedrock", "vertex"]
    region: Line
    project: Line
    api_key_env: Variable
    auth: Literal["bearer", "x-api-key"]
    headers: dict[Header, Line] = {}
    worker: Name
    max_tokens: int = Field(ge=256, le=128_000)
    retries: int = Field(ge=1, le=100)
    retry_after_cap_s: float = Field(gt=0)
    ask_after_minutes: float = Field(gt=0)
    give_up_after_minutes: float = Field(gt=0)
    silence_s: float = Field(gt=0)
    call_s: float = Field(gt=0)
    compact_at: float = Field(gt=0, le=1)
    compact_to: float = Field(gt=0, lt=1)
    without: Lacking
    model_without: dict[Name, Lacking] = {}
    fallbacks: dict[Name, Name] = {}
    prices: dict[Name, Price] = {}


class WorkerKind(Section):
    kind: Name
    description: Line
    model: Name | None = None
    models: Texts
    rungs: Rungs
    first_rung: Line
    prompt: Command
    tools: Texts
    command: Line
    hosts: Texts
    mcp: Texts
    turns: int = Field(ge=1, le=1000)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    time_s: float = Field(gt=0, le=86_400)
    read_only: Texts
    path: Texts
    network: bool
    environment: dict[Variable, Line] = {}
    labels: Labels
    pass_environment: Annotated[tuple[Variable, ...], Field(strict=False)]

    @property
    def calls_models(self) -> bool:
        """Whether its calls go through the fleet. An agent without a model of ours has an access of its own."""
        return self.kind != "command" and (self.kind != "acp" or bool(self.model or self.models or self.rungs))


class Checks(Section):
    gate: Command
    gate_timeout_s: float = Field(gt=0, le=7200)
    slots: int = Field(ge=0, le=1000)
    allow_red_base: bool
    reruns: int = Field(ge=0, le=10)
    expected_tests: bool
    protected: Texts
    named: dict[Name, Annotated[Command, Field(min_length=1)]] = {}
    tests: dict[Name, ResultsFile] = {}


class Box(Section):
    sandbox: Literal["bubblewrap", "none"]
    network: bool
    syscall_filter: bool
    memory_mb: int = Field(ge=64)
    disk_mb: int = Field(ge=16)
    read_only: Texts
    path: Texts
    tool_chains: Texts
    environment: dict[Variable, Line] = {}
    commands: int = Field(ge=0, le=10_000)
    labels: Labels
    max_file_mb: int = Field(ge=1, le=100_000)
    max_files: int = Field(ge=1)


class Worktrees(Section):
    lease: Literal["auto", "overlay", "pool"]
    setup: Command
    setup_timeout_s: float = Field(gt=0, le=86_400)
    setup_network: Literal["none", "base", "all"]
    lock_files: Texts
    include: Texts
    first_port: int = Field(ge=1024, le=60_000)
    ports: int = Field(ge=1, le=1000)
    max_gb: float = Field(ge=0)


class Git(Section):
    name: Line
    email: Annotated[str, Field(pattern=r"^[^\s<>@\x00-\x1f\x7f]+@[^\s<>@\x00-\x1f\x7f]+$")]

    sign: Literal["", "openpgp", "ssh", "x509"]
    signing_key: Line
    signing_program: Line
    sign_off: bool
    taker: Annotated[Line, Field(pattern=r"^$|^[^<>]+ <[^\s<>@]+@[^\s<>@]+>$")]


MOST_OF_A_CLUSTER = 1000


class NodeSettings(Section):
    """A machine that attempts and checks go out to, or a cluster of them."""

    command: Annotated[Line, Field(min_length=1)] | None = None
    ray: Annotated[Line, Field(pattern=r"^auto$|^[^\s/]+:\d{1,5}$")] | None = None
    slots: int | None = Field(default=None, ge=1, le=100_000)
    workers: int | None = Field(default=None, ge=0, le=1000)
    checks: int | None = Field(default=None, ge=0, le=1000)
    lands: bool | None = None
    labels: Labels | None = None
    lease_s: float | None = Field(default=None, ge=1, le=3600)

    @model_validator(mode="after")
    def _is_reached_in_one_way(self) -> Self:
        if self.command is None and self.ray is None:
            raise ValueError("needs a command (or ray, for the machines of a Ray cluster)")
        if self.slots is not None and self.ray is None:
            raise ValueError("slots are asked for from a Ray cluster only: set ray, or take workers")
        return self

    @property
    def most_workers(self) -> int:
        """How many attempts it works on at once, as far as that is known before it is reached."""
        if self.ray is not None:
            return self.slots or MOST_OF_A_CLUSTER
        return 1 if self.workers is None else self.workers


class McpServer(Section):
    """A server of the Model Context Protocol, whose tools workers may have."""

    command: Annotated[Line, Field(min_length=1)]
    environment: dict[Variable, Line] = {}
    pass_environment: Annotated[tuple[Variable, ...], Field(strict=False)] | None = None
    tools: Texts | None = None
    timeout_s: float | None = Field(default=None, gt=0, le=3600)


class State(Section):
    dir: Line
    max_gb: float = Field(ge=0)


class Reviewer(Section):
    look_for: Annotated[str, Field(max_length=10_000), AfterValidator(_command)]
    model: Line
    effort: Effort | None = None
    votes: int = Field(ge=1, le=MOST_VOTES)
    batch: bool
    poll_s: float = Field(gt=0, le=3600)
    change_chars: int = Field(ge=1000, le=10_000_000)
    time_s: float = Field(gt=0, le=7200)


class Config(Section):
    """The sections that the program itself has. Those of features are added by `layer.py`."""

    run: Run
    review: Review
    planner: Planner
    reviewer: Reviewer
    limits: Limits
    landing: Landing
    models: Models
    workers: dict[Annotated[str, AfterValidator(_worker_name)], WorkerKind]
    checks: Checks
    box: Box
    worktrees: Worktrees
    git: Git
    nodes: dict[Slug, NodeSettings] = {}
    mcp: dict[Slug, McpServer] = {}
    state: State

    def is_set(self, key: str) -> bool:
        """Whether the value of a key such as `traces.otlp` is neither empty nor false."""
        return bool(reduce(getattr, key.split("."), self))

    def of(self, kind: type[Kind]) -> Kind:
        """The section of a feature."""
        return next(found for name in type(self).model_fields if isinstance(found := getattr(self, name), kind))


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
# The project's gate as a criterion.


GATE = "gate"
"""What `[checks.tests]` calls it."""


def gate_of(checks: Checks) -> Criterion:
    """Its command may be empty: then there is none."""
    return Criterion(
        criterion="the project's gate",
        run=checks.gate,
        timeout_s=checks.gate_timeout_s,
        fails_before=False,
        tests=checks.tests.get(GATE),
    )


# ---- machines --------------------------------------------------------------------------------------------------------
# The machines of a configuration: what each may do for a run, and what worker kinds ask of them.


def machines_of(config: Config) -> Machines:
    """The machines that may ever work for a run with this configuration."""
    nodes = {
        name: MachineOffer(labels=node.labels or (), lands=bool(node.lands), works=node.workers != 0)
        for name, node in config.nodes.items()
    }
    return Machines(
        offers={HERE: MachineOffer(labels=config.box.labels, lands=True), **nodes},
        workers={name: worker.labels for name, worker in config.workers.items() if worker.labels},
        stays=tuple(stays_here(config)),
    )


def stays_here(config: Config) -> Mapping[str, str]:
    """Why attempts of a worker can't be made on nodes, by worker."""
    reasons = {}
    for name, worker in config.workers.items():
        if worker.hosts:
            reasons[name] = "it fetches from hosts as this machine reaches them"
        elif worker.mcp:
            reasons[name] = f"the tools of {', '.join(worker.mcp)} are called by this machine"
        elif worker.pass_environment:
            reasons[name] = f"it gets {', '.join(worker.pass_environment)} from this machine's environment"
    return reasons
