"""The sections of the configuration for the planner, workers, worktrees and checks: keys, types and bounds.

The defaults are in `config.toml`. `fleet/config/schema.py` has the other sections.
"""

import shlex
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fleet.core.base.ids import is_slug
from fleet.core.base.usage import Capability
from fleet.core.plans.limits import parse_rung
from fleet.core.plans.plan import Effort, Label, ResultsFile


class Section(BaseModel):
    """A table of the configuration. Values are not converted: `"16"` is not a number."""

    refused: ClassVar[Mapping[str, str]] = {}
    """The keys that a repository must not set, each with the reason. An empty name means all keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain a line break or a control character")
    return text


def _command(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a null character")
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


class PlannerSection(Section):
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


class PriceSection(Section):
    """Dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    """For writes that stay in the cache for five minutes."""
    cache_read: float | None = Field(default=None, ge=0)
    """None for the price of other input."""


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
    prices: dict[Name, PriceSection] = {}


class WorkerSection(Section):
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
        """Whether its calls go through fleet. An agent without a configured model has separate access."""
        return self.kind != "command" and (self.kind != "acp" or bool(self.choices))

    @property
    def choices(self) -> tuple[str, ...]:
        """The models, the default first. If empty, the default is `models.worker`."""
        if self.rungs:
            return tuple(dict.fromkeys(parse_rung(rung)[0] for rung in self.rungs))
        return self.models or ((self.model,) if self.model else ())

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command line, for kinds that run a program."""
        return tuple(shlex.split(self.command))


class ChecksSection(Section):
    gate: Command
    gate_timeout_s: float = Field(gt=0, le=7200)
    slots: int = Field(ge=0, le=1000)
    allow_red_base: bool
    reruns: int = Field(ge=0, le=10)
    expected_tests: bool
    protected: Texts
    named: dict[Name, Annotated[Command, Field(min_length=1)]] = {}
    tests: dict[Name, ResultsFile] = {}


class BoxSection(Section):
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


class WorktreesSection(Section):
    lease: Literal["auto", "overlay", "pool"]
    setup: Command
    setup_timeout_s: float = Field(gt=0, le=86_400)
    setup_network: Literal["none", "base", "all"]
    lock_files: Texts
    include: Texts
    first_port: int = Field(ge=1024, le=60_000)
    ports: int = Field(ge=1, le=1000)
    max_gb: float = Field(ge=0)


class GitSection(Section):
    name: Line
    email: Annotated[str, Field(pattern=r"^[^\s<>@\x00-\x1f\x7f]+@[^\s<>@\x00-\x1f\x7f]+$")]

    sign: Literal["", "openpgp", "ssh", "x509"]
    signing_key: Line
    signing_program: Line
    sign_off: bool
    taker: Annotated[Line, Field(pattern=r"^$|^[^<>]+ <[^\s<>@]+@[^\s<>@]+>$")]

    @property
    def marks_taken(self) -> bool:
        """Whether merged commits are signed or signed off."""
        return bool(self.sign) or self.sign_off
