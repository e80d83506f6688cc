"""What the minds are told when they are opened. Where the values come from is not known here."""

from dataclasses import dataclass, field
from pathlib import Path

from agents.compaction import Room, room_for
from agents.models.prices import Price
from fleet.ports import NO_EXTRAS, Extras


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker the planner can choose: a kind, and what is said of this one."""

    kind: str = "coder"
    description: str = ""
    """What the planner is told it is good for; empty: what the kind says of itself."""
    models: tuple[str, ...] = ()
    """Its models, where they are not everyone's: the first is used unless an attempt names another."""
    prompt: str = ""
    """What it is told besides what its kind is told."""
    tools: tuple[str, ...] = ()
    """Its tools, where they are not those of its kind."""
    command: tuple[str, ...] = ()
    """The words of the command line, for kinds that run a program."""
    hosts: tuple[str, ...] = ()
    """Whom the manager may ask for it, for kinds that reach the network."""
    turns: int = 60
    """Calls in one attempt."""
    tokens: int | None = None
    dollars: float | None = None
    time_s: float = 3600.0
    extras: Extras = NO_EXTRAS
    """What the box of its commands shows besides what everybody's shows."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values its commands are given that nobody else shall see."""


@dataclass(frozen=True, slots=True)
class MindSettings:
    """Everything the minds can be told. Each number bounds something and has its name in `config.toml`."""

    base_url: str
    api_key: str = field(repr=False)
    transcripts: Path
    """The folder in which every conversation is written down."""
    planner_model: str = "claude-opus-5-5"
    worker_model: str = "claude-haiku-5-5"
    workers: dict[str, WorkerSettings] = field(default_factory=lambda: {"coder": WorkerSettings()})
    """The workers by the names that plans use."""
    max_tokens: int = 16_000
    """Tokens of one answer."""
    explore_turns: int = 24
    """Calls the planner may spend on reading before it must hand in a revision."""
    planner_s: float = 1800.0
    """How long one planner conversation may take."""
    repairs: int = 2
    """How often a revision that does not hold together may be mended."""
    horizon: int = 40
    """How many subtasks ahead the planner is advised to plan."""
    retries: int = 4
    """Tries of one call."""
    backoff_first_s: float = 1.0
    backoff_cap_s: float = 60.0
    retry_after_cap_s: float = 60.0
    """A server may ask for a longer wait; we look again after this one."""
    pause_s: float = 2.0
    """How long the fleet holds back after a limit that names no time."""
    fallbacks: dict[str, str] = field(default_factory=dict)
    """The model that takes the place of one the service does not know any more."""
    connect_s: float = 15.0
    silence_s: float = 120.0
    """How long a call may go without content; pings are none."""
    call_s: float = 600.0
    """How long a call may take in all."""
    command_s: float = 600.0
    """How long one command of a worker may take."""
    output_chars: int = 20_000
    """How much of a tool's output a model sees: its head and its tail."""
    prices: dict[str, Price] = field(default_factory=dict)
    """Prices that take the place of the built-in ones, by model."""
    compact_at: float = 0.85
    """The share of what a prompt may have at which a conversation is made shorter."""
    compact_to: float = 0.4
    """And the share it has then."""

    def room(self, model: str) -> Room:
        """How long a conversation with this model may become."""
        return room_for(model, self.max_tokens, self.prices, at=self.compact_at, to=self.compact_to)
