"""Opens the agents: one model client and one caller for all, the planner, and a worker of each configured name."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random, SystemRandom

from agents.base.transcripts import Transcripts
from agents.conversation.settings import AgentSettings
from agents.models.calls import Caller
from agents.models.cost.cache_warmup import CacheWarmup
from agents.models.wire.client import open_client
from agents.planner import ClaudePlanner
from agents.workers.registry import WorkerContext, describe, make_workers
from fleet.ports.agents import CallGauges, Planner, Worker


@dataclass(frozen=True, slots=True)
class Agents:
    """The planner and all workers."""

    planner: Planner
    workers: dict[str, Worker]
    descriptions: dict[str, str]
    """What each worker is for."""
    gauges: Callable[[], CallGauges]
    """The calls to models as they are now."""


@asynccontextmanager
async def open_agents(settings: AgentSettings, *, chance: Random | None = None) -> AsyncIterator[Agents]:
    """The agents, for as long as the block lasts. Raises `UsageError` for invalid settings."""
    async with open_client(settings.access, settings.timeouts) as client:
        caller = Caller(
            CacheWarmup(client, settings.prices, lacks=client.lacks),
            settings.retry,
            settings.prices,
            chance=chance or SystemRandom(),
            fallbacks=settings.fallbacks,
            tell_limits=client.limits,
            lacks=client.lacks,
            take_warnings=client.take_warnings,
        )
        transcripts = Transcripts(settings.transcripts, secrets=settings.access.secrets)
        yield Agents(
            planner=ClaudePlanner(settings, caller, transcripts),
            workers=make_workers(WorkerContext(settings, caller, transcripts, client)),
            descriptions=describe(settings.workers),
            gauges=caller.service.gauges,
        )
