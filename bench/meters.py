"""A meter for calls outside of a run, and the settings of the product's agents."""

from dataclasses import replace
from pathlib import Path

from agents.conversation.settings import AgentSettings
from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.core.base.usage import Cost
from fleet.core.facts.facts import Failure
from fleet.ports.agents import ModelUse, ServiceGate, WaitRules

OPEN_GATE = ServiceGate(lambda: WaitRules(frozenset({"limited", "down", "refused"})))
"""Of a run that has already received an answer."""


class UnlimitedMeter:
    """A meter without limits."""

    service = OPEN_GATE
    called = True

    def may_call(self) -> bool:
        return True

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        """Grant everything."""

    async def widen(self, most: Cost) -> float:
        """Grant everything."""
        del most
        return 1.0

    def release(self, *, lost: bool = False) -> None:
        del lost

    async def used(self, use: ModelUse) -> None:
        """Ignore it."""


def product_agents(base_url: str, transcripts: Path) -> AgentSettings:
    """The agents of the product with default settings and one coder, at this service."""
    settings = Wiring(default_config(), {"ANTHROPIC_API_KEY": "none-is-needed"}).agents(transcripts)
    return replace(settings, access=replace(settings.access, base_url=base_url))


def with_worker(settings: AgentSettings, model: str) -> AgentSettings:
    """The settings with another model for workers."""
    return replace(settings, models=settings.models.model_copy(update={"worker": model}))
