"""The settings of all agents. Only values that no configuration key sets have a default here."""

from dataclasses import dataclass, field
from pathlib import Path

from agents.conversation.history import PromptLimits, prompt_limits
from agents.models.access import Access
from agents.models.exchange import Timeouts
from agents.models.prices import ModelLimits, Price
from agents.models.service import RetryPolicy
from agents.tools.mcp_catalog import ServerSettings
from fleet.core.plans.plan import Effort
from fleet.ports.agents import Extras


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker that the planner can choose: its kind, and how it differs from others of that kind."""

    kind: str
    description: str
    """What the planner reads about it. Empty: the purpose of its kind."""
    models: tuple[str, ...]
    """The first one is used unless an attempt names another. Empty: `AgentSettings.worker_model`."""
    rungs: tuple[str, ...]
    """The rungs of its ladder, whose models are `models`."""
    prompt: str
    """Text after the prompt of its kind."""
    tools: tuple[str, ...]
    """Empty: the tools of its kind."""
    command: tuple[str, ...]
    """The words of the command line, for kinds that run a program."""
    hosts: tuple[str, ...]
    """The hosts it may fetch from, for kinds that reach the network."""
    turns: int
    """Calls in one attempt."""
    tokens: int | None
    dollars: float | None
    time_s: float
    mcp: tuple[str, ...]
    """The servers whose tools it has, besides its own."""
    extras: Extras
    """What the box of its commands shows and allows beyond the usual."""
    secrets: tuple[str, ...] = field(repr=False)
    """Values its commands get that neither models nor transcripts may see."""
    changed: frozenset[str] = frozenset()
    """The fields that are not at their default: each of them must mean something to the kind."""

    @property
    def calls_models(self) -> bool:
        """Whether its calls go through the fleet. An agent without a model of ours has an access of its own."""
        return self.kind != "command" and (self.kind != "acp" or bool(self.models))


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything the agents can be configured with."""

    access: Access
    """How the models' service is reached."""
    transcripts: Path
    """The folder in which every conversation is recorded."""
    planner_model: str
    planner_effort: Effort | None
    """How hard the planner's model tries; None: as it does by default."""
    worker_model: str
    workers: dict[str, WorkerSettings]
    """The workers by the names that plans use."""
    max_tokens: int
    """Tokens of one answer."""
    explore_turns: int
    """Calls the planner may spend on reading before it must submit a revision."""
    repairs: int
    """How often a revision that does not hold together may be repaired."""
    horizon: int
    """How many subtasks ahead the planner is advised to plan."""
    retry: RetryPolicy
    timeouts: Timeouts
    fallbacks: dict[str, str]
    """The model to use instead of one that the service no longer has."""
    prices: dict[str, Price]
    """Prices that replace the built-in ones, by model."""
    compact_at: float
    """The share of its maximum length at which a conversation is compacted."""
    compact_to: float
    """The share it is compacted to."""
    servers: dict[str, ServerSettings] = field(default_factory=dict)
    """The servers of the Model Context Protocol that workers name."""
    reviewer_model: str = ""
    """The model that reviews changes; empty: one that did not make them."""
    reviewer_effort: Effort | None = None
    review_s: float = 900.0
    """How long one review may take."""
    review_chars: int = 300_000
    """The longest change that is reviewed, in characters."""
    planner_s: float = 1800.0
    """How long one planner conversation may take."""
    command_s: float = 600.0
    """How long one command of a worker may take."""
    output_chars: int = 20_000
    """How much of a tool's output a model sees: its head and its tail."""

    def answer_tokens(self, accepts: ModelLimits) -> int:
        """How long an answer of a model with these limits may be."""
        return min(self.max_tokens, accepts.output_tokens)

    def prompt_limits(self, model: str, accepts: ModelLimits) -> PromptLimits:
        """How long a conversation with this model may become."""
        tokens = self.answer_tokens(accepts)
        return prompt_limits(model, accepts, tokens, self.prices, at=self.compact_at, to=self.compact_to)
