"""The settings of all agents: the sections of the configuration, and what follows from them and the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from agents.conversation.history import PromptLimits, prompt_limits
from agents.models.access import Access
from agents.models.exchange import Timeouts
from agents.models.prices import ModelLimits, Price, prices_of
from agents.models.service import RetryPolicy
from agents.tools.tool import OpenServers
from fleet.ports.agents import Extras
from fleet.ports.settings import Models, Planner, WorkerSection


class WorkerSettings(WorkerSection):
    """The section of a worker, with the text of its prompt and the variables that it gets of the environment."""

    passed: dict[str, str] = Field(default={}, repr=False)
    """Neither models nor transcripts may see the values."""
    changed: frozenset[str] = frozenset()
    """The keys that are not at their default: each of them must mean something to the kind."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self.passed.values())

    @property
    def extras(self) -> Extras:
        """What the box of its commands shows and allows beyond the usual."""
        environment = {**self.environment, **self.passed}
        return Extras(self.read_only, self.path, environment, network=True if self.network else None)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Everything the agents can be configured with. Only values that no configuration key sets have a default."""

    access: Access
    """How the models' service is reached."""
    transcripts: Path
    """The folder in which every conversation is recorded."""
    models: Models
    planner: Planner
    workers: Mapping[str, WorkerSettings]
    """The workers by the names that plans use."""
    retry: RetryPolicy
    servers: OpenServers | None = None
    """Opens the servers whose tools workers have; None: no worker names any."""
    planner_s: float = 1800.0
    """How long one planner conversation may take."""
    command_s: float = 600.0
    """How long one command of a worker may take."""
    output_chars: int = 20_000
    """How much of a tool's output a model sees: its head and its tail."""

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(self.models.silence_s, self.models.call_s)

    @property
    def prices(self) -> dict[str, Price]:
        """Prices that replace the built-in ones, by model."""
        return prices_of(self.models)

    def answer_tokens(self, accepts: ModelLimits) -> int:
        """How long an answer of a model with these limits may be."""
        return min(self.models.max_tokens, accepts.output_tokens)

    def prompt_limits(self, model: str, accepts: ModelLimits) -> PromptLimits:
        """How long a conversation with this model may become."""
        models, tokens = self.models, self.answer_tokens(accepts)
        return prompt_limits(model, accepts, tokens, self.prices, at=models.compact_at, to=models.compact_to)
