"""The shape of the configuration: every section and key, its type, its bounds and its default.

One frozen tree; an unknown key is an error. Knows nothing of files, flags or the environment (that is `config.py`), and
nothing of adapters: they get slices of it from `app.py`. `config.toml` says the same in words; a test compares them.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fleet.core.ids import is_slug
from fleet.core.plan import PLANNER, Risk
from fleet.core.policy import Policy, ReviewRules

PROTECTED = (
    # how tests are found and run: whoever writes these can make any suite green
    "**/conftest.py",
    "**/pytest.ini",
    "**/.pytest.ini",
    "**/pytest.toml",
    "**/.pytest.toml",
    "**/tox.ini",
    "**/tox.toml",
    "**/setup.cfg",
    "**/pyproject.toml",
    "**/.coveragerc",
    "**/noxfile.py",
    "**/sitecustomize.py",
    "**/usercustomize.py",
    "**/*.pth",
    "**/package.json",
    "**/.npmrc",
    "**/.mocharc*",
    "**/jest.config.*",
    "**/vitest.config.*",
    "**/playwright.config.*",
    "**/Cargo.toml",
    "**/.cargo/**",
    "**/Makefile",
    "**/makefile",
    "**/GNUmakefile",
    "**/justfile",
    "**/Taskfile.y*ml",
    # what runs elsewhere with rights of its own
    ".github/**",
    ".gitlab-ci.yml",
    ".gitlab/**",
    ".circleci/**",
    ".buildkite/**",
    ".ci/**",
    ".travis.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
    ".pre-commit-config.yaml",
    ".husky/**",
    ".devcontainer/**",
    ".vscode/**",
    ".idea/**",
    "**/.envrc",
    # what git does with files
    "**/.gitattributes",
    ".gitmodules",
    ".lfsconfig",
    # what later agents are told
    "**/AGENTS.md",
    "**/CLAUDE.md",
    "**/GEMINI.md",
    ".claude/**",
    ".cursor/**",
    ".cursorrules",
    ".windsurf/**",
    ".mcp.json",
    "fleet.toml",
)

LOCK_FILES = (
    "Cargo.lock",
    "Gemfile.lock",
    "bun.lock",
    "composer.lock",
    "go.sum",
    "mix.lock",
    "package-lock.json",
    "pdm.lock",
    "pnpm-lock.yaml",
    "poetry.lock",
    "pylock.toml",
    "requirements.txt",
    "uv.lock",
    "yarn.lock",
)


class Section(BaseModel):
    """A table of the configuration. Values are taken as they are: `"16"` is no number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _one_line(text: str) -> str:
    if any(not character.isprintable() for character in text):
        message = "must not hold a line break or a control character"
        raise ValueError(message)
    return text


def _command(text: str) -> str:
    if "\0" in text:
        message = "must not hold a null character"
        raise ValueError(message)
    return text


def _worker_name(text: str) -> str:
    if not is_slug(text):
        message = "must be 1 to 64 letters, digits, dots, dashes or underscores"
        raise ValueError(message)
    if text == PLANNER:
        message = "is what plans call the planner of an area; choose another name"
        raise ValueError(message)
    return text


Line = Annotated[str, AfterValidator(_one_line)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
Command = Annotated[str, AfterValidator(_command)]
Texts = Annotated[tuple[Name, ...], Field(strict=False)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Run(Section):
    workers: int = Field(default=16, ge=1, le=1000)
    budget_dollars: float | None = Field(default=None, gt=0)
    budget_minutes: float | None = Field(default=None, gt=0)
    budget_tokens: int | None = Field(default=None, gt=0)
    budget_attempts: int | None = Field(default=None, gt=0)
    budget_soft: float = Field(default=0.8, gt=0, le=1)
    flat: bool = False
    review: bool = False


class Review(Section):
    max_risk: Risk = "medium"
    paths: Texts = ()
    workers: Texts = ()
    max_dollars: float | None = Field(default=None, gt=0)


class Planner(Section):
    model: Name = "claude-opus-5-5"
    horizon: int = Field(default=40, ge=1, le=1000)
    repairs: int = Field(default=2, ge=0, le=20)
    max_subtasks: int = Field(default=500, ge=1)
    max_areas: int = Field(default=16, ge=0)
    area_depth: int = Field(default=1, ge=0, le=5)
    max_calls: int = Field(default=300, ge=1)
    max_failures: int = Field(default=5, ge=1)
    settle_s: float = Field(default=2.0, ge=0)
    explore_turns: int = Field(default=24, ge=1, le=500)


class Limits(Section):
    attempts: int = Field(default=4, ge=1, le=50)
    subtask_dollars: float | None = Field(default=None, gt=0)
    subtask_minutes: float | None = Field(default=None, gt=0)
    subtask_tokens: int | None = Field(default=None, gt=0)
    retries: int = Field(default=6, ge=0, le=100)
    depth: int = Field(default=3, ge=0, le=10)
    backoff_first_s: float = Field(default=1.0, gt=0)
    backoff_cap_s: float = Field(default=120.0, gt=0)
    answer_wait_minutes: float = Field(default=10.0, ge=0)
    drain_minutes: float = Field(default=10.0, ge=0)


class Landing(Section):
    batch: int = Field(default=256, ge=1, le=500)
    slots: int = Field(default=2, ge=1, le=64)
    every_commit: bool = False
    every_commit_within_s: float = Field(default=60.0, ge=0)


class Price(Section):
    """Dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    cache_read: float | None = Field(default=None, ge=0)


class Models(Section):
    base_url: Annotated[Name, Field(pattern=r"^https?://[^/\s?#]+[^\s?#]*$")] = "https://api.anthropic.com"
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "ANTHROPIC_API_KEY"
    worker: Name = "claude-haiku-5-5"
    max_tokens: int = Field(default=16_000, ge=256, le=128_000)
    retries: int = Field(default=4, ge=1, le=100)
    retry_after_cap_s: float = Field(default=60.0, gt=0)
    ask_after_minutes: float = Field(default=15.0, gt=0)
    give_up_after_minutes: float = Field(default=720.0, gt=0)
    silence_s: float = Field(default=120.0, gt=0)
    call_s: float = Field(default=600.0, gt=0)
    compact_at: float = Field(default=0.85, gt=0, le=1)
    compact_to: float = Field(default=0.4, gt=0, lt=1)
    fallbacks: dict[Name, Name] = {}
    prices: dict[Name, Price] = {}


class WorkerKind(Section):
    kind: Name = "coder"
    description: Line = ""
    model: Name | None = None
    models: Texts = ()
    prompt: Command = ""
    tools: Texts = ()
    command: Line = ""
    hosts: Texts = ()
    turns: int = Field(default=60, ge=1, le=1000)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    time_s: float = Field(default=3600.0, gt=0, le=86_400)
    read_only: Texts = ()
    path: Texts = ()
    network: bool = False
    environment: dict[Variable, Line] = {}
    pass_environment: Annotated[tuple[Variable, ...], Field(strict=False)] = ()


class Checks(Section):
    gate: Command = ""
    gate_timeout_s: float = Field(default=1800.0, gt=0, le=7200)
    slots: int = Field(default=0, ge=0, le=1000)
    allow_red_base: bool = False
    reruns: int = Field(default=1, ge=0, le=10)
    expected_tests: bool = True
    protected: Texts = PROTECTED
    named: dict[Name, Annotated[Command, Field(min_length=1)]] = {}

    def slots_on(self, cores: int) -> int:
        """Checks at once on a machine with so many cores."""
        return self.slots or max(1, cores)


class Box(Section):
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    network: bool = False
    syscall_filter: bool = True
    memory_mb: int = Field(default=8192, ge=64)
    disk_mb: int = Field(default=8192, ge=16)
    read_only: Texts = ()
    path: Texts = ()
    environment: dict[Variable, Line] = {}
    commands: int = Field(default=0, ge=0, le=10_000)
    max_file_mb: int = Field(default=50, ge=1, le=100_000)
    max_files: int = Field(default=20_000, ge=1)

    def commands_on(self, cores: int) -> int:
        """Workers' commands at once on a machine with so many cores."""
        return self.commands or 4 * max(1, cores)


class Worktrees(Section):
    lease: Literal["auto", "overlay", "pool"] = "auto"
    setup: Command = ""
    setup_timeout_s: float = Field(default=1800.0, gt=0, le=86_400)
    lock_files: Texts = LOCK_FILES
    include: Texts = ()
    first_port: int = Field(default=20_000, ge=1024, le=60_000)
    ports: int = Field(default=10, ge=1, le=1000)
    max_gb: float = Field(default=0.0, ge=0)
    sparse: bool = False


class Git(Section):
    email: Annotated[str, Field(pattern=r"^[^\s<>@\x00-\x1f\x7f]+@[^\s<>@\x00-\x1f\x7f]+$")] = "fleet@localhost"


class Metrics(Section):
    listen: Annotated[Line, Field(pattern=r"^(?:\S*:)?\d{1,5}$|^$")] = ""
    hosts: Texts = ()


class State(Section):
    dir: Line = ""
    max_gb: float = Field(default=0.0, ge=0)


class Config(Section):
    """Everything that can be set."""

    run: Run = Run()
    review: Review = Review()
    planner: Planner = Planner()
    limits: Limits = Limits()
    landing: Landing = Landing()
    models: Models = Models()
    workers: dict[Annotated[str, AfterValidator(_worker_name)], WorkerKind] = {"coder": WorkerKind()}
    checks: Checks = Checks()
    box: Box = Box()
    worktrees: Worktrees = Worktrees()
    git: Git = Git()
    metrics: Metrics = Metrics()
    state: State = State()


def as_policy(config: Config) -> Policy:
    """What the engine weighs, out of the readable sections."""
    return Policy(
        workers=config.run.workers,
        ladders={name: worker.models for name, worker in config.workers.items() if len(worker.models) > 1},
        budget_dollars=config.run.budget_dollars,
        budget_minutes=config.run.budget_minutes,
        budget_tokens=config.run.budget_tokens,
        budget_attempts=config.run.budget_attempts,
        budget_soft=config.run.budget_soft,
        subtask_dollars=config.limits.subtask_dollars,
        subtask_minutes=config.limits.subtask_minutes,
        subtask_tokens=config.limits.subtask_tokens,
        max_attempts=config.limits.attempts,
        max_retries=config.limits.retries,
        max_depth=config.limits.depth,
        max_subtasks=config.planner.max_subtasks,
        max_areas=config.planner.max_areas,
        area_depth=config.planner.area_depth,
        max_planner_calls=config.planner.max_calls,
        max_planner_failures=config.planner.max_failures,
        settle_s=config.planner.settle_s,
        backoff_first_s=config.limits.backoff_first_s,
        backoff_cap_s=config.limits.backoff_cap_s,
        batch=config.landing.batch,
        slots=config.landing.slots,
        every_commit=config.landing.every_commit,
        every_commit_within_s=config.landing.every_commit_within_s,
        reruns=config.checks.reruns,
        check_base=bool(config.checks.gate.strip()),
        allow_red_base=config.checks.allow_red_base,
        answer_wait_s=config.limits.answer_wait_minutes * 60,
        drain_s=config.limits.drain_minutes * 60,
        flat=config.run.flat,
        service_wait_s=config.models.ask_after_minutes * 60,
        service_lost_s=config.models.give_up_after_minutes * 60,
        review=config.run.review,
        rules=ReviewRules.model_validate(config.review.model_dump()),
    )
