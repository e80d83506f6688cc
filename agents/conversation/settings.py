"""The settings of all agents, derived from the configuration and the environment."""

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
from fleet.ports.settings import Models, PlannerSection, WorkerSection


class WorkerSettings(WorkerSection):
    """The section of a worker, with the text of its prompt and its environment variables."""

    passed: dict[str, str] = Field(default={}, repr=False)
    """Environment variables of the worker. Their values must not appear in prompts or transcripts."""
    changed: frozenset[str] = frozenset()
    """The keys that differ from their default. The kind must support each of them."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self.passed.values())

    @property
    def extras(self) -> Extras:
        """Return what the sandbox of its commands shows and allows in addition to the defaults."""
        environment = {**self.environment, **self.passed}
        return Extras(self.read_only, self.path, environment, network=True if self.network else None)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of all agents. Only values without a configuration key have a default."""

    access: Access
    """Access to the model service."""
    transcripts: Path
    """The folder in which every conversation is recorded."""
    models: Models
    planner: PlannerSection
    workers: Mapping[str, WorkerSettings]
    """The workers by the names that plans use."""
    retry: RetryPolicy
    servers: OpenServers | None = None
    """Opens the MCP servers of workers; None if no worker uses one."""
    planner_s: float = 1800.0
    """Time limit of a planner conversation."""
    command_s: float = 600.0
    """Time limit of a worker's command."""
    output_chars: int = 20_000
    """How many characters of a tool's output a model sees: the start and the end."""

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(self.models.silence_s, self.models.call_s)

    @property
    def prices(self) -> dict[str, Price]:
        """Return the prices that replace built-in ones, by model."""
        return prices_of(self.models)

    def answer_tokens(self, accepts: ModelLimits) -> int:
        """Return the maximum length of an answer from a model with these limits."""
        return min(self.models.max_tokens, accepts.output_tokens)

    def prompt_limits(self, model: str, accepts: ModelLimits) -> PromptLimits:
        """Return the length limits of a conversation with this model."""
        models, tokens = self.models, self.answer_tokens(accepts)
        return prompt_limits(model, accepts, tokens, self.prices, at=models.compact_at, to=models.compact_to)
