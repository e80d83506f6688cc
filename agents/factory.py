"""Creates the agents: one model client and one caller shared by all, the planner, and each configured worker.

A node only has workers, one per attempt. The manager makes their model calls.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom

from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.cache_warmup import CacheWarmup
from agents.models.calls import Caller
from agents.models.client import Client, open_client
from agents.models.transcripts import Transcripts
from agents.planner import ClaudePlanner
from agents.remote import CallLine, LineRelay, RelayedCalls, calls_of, no_calls
from agents.workers.command import has_acp, program_of
from agents.workers.registry import WorkerContext, describe, make_worker, make_workers
from agents.workers.relay import Relay
from fleet.ports.agents import CallGauges, Planner, Worker
from fleet.ports.orders import OpenCalls


@dataclass(frozen=True, slots=True)
class Agents:
    """The planner and all workers."""

    planner: Planner
    workers: dict[str, Worker]
    descriptions: dict[str, str]
    """The purpose of each worker."""
    gauges: Callable[[], CallGauges]
    """Returns the current gauges of model calls."""
    calls: OpenCalls = no_calls
    """Opens the model calls of attempts on nodes."""
    models: "OpenModels | None" = None
    """For more conversations; None if no model may be called."""


@dataclass(frozen=True, slots=True)
class OpenModels:
    """The model client and its settings, for conversations during a run."""

    settings: AgentSettings
    client: Client
    caller: Caller
    transcripts: Transcripts


@asynccontextmanager
async def open_agents(settings: AgentSettings, *, chance: Random | None = None) -> AsyncIterator[Agents]:
    """Create the agents, which are closed after the block. Raises `UsageError` for invalid settings."""
    async with open_client(settings.access, settings.timeouts) as client, AsyncExitStack() as stack:
        servers = await stack.enter_async_context(settings.servers()) if settings.servers is not None else None
        warmup = CacheWarmup(client, settings.prices, lacks=client.lacks)
        caller = Caller(
            warmup,
            settings.retry,
            settings.prices,
            chance=chance or SystemRandom(),
            fallbacks=settings.models.fallbacks,
            tell_limits=client.limits,
            lacks=client.lacks,
            take_warnings=client.take_warnings,
        )
        transcripts = Transcripts(settings.transcripts, secrets=settings.access.secrets)
        context = WorkerContext(settings, caller, transcripts, partial(Relay, settings, caller, client), servers)
        yield Agents(
            planner=ClaudePlanner(settings, caller, transcripts),
            workers=make_workers(context),
            descriptions=describe(settings.workers),
            gauges=caller.service.gauges,
            calls=calls_of(context, caller, partial(Relay, settings, caller, client, warmup=warmup)),
            models=OpenModels(settings, client, caller, transcripts),
        )


def worker_on_node(settings: AgentSettings, name: str, line: CallLine) -> Worker:
    """Create a worker for one attempt, whose calls go to the manager. Raises `UsageError`."""
    transcripts, relay = Transcripts(settings.transcripts, secrets=()), LineRelay(line)
    calls = RelayedCalls(relay, settings.retry)
    return make_worker(name, WorkerContext(settings, calls, transcripts, lambda *_: relay))


def workers_lacking(settings: AgentSettings) -> list[str]:
    """Return the workers that a node can't run: their program is missing, or their usage can't be counted there."""
    return [name for name, worker in settings.workers.items() if _is_lacking(worker)]


def _is_lacking(worker: WorkerSettings) -> bool:
    if worker.kind == "acp":
        return not has_acp() or not worker.calls_models
    return worker.kind == "claude-code" and program_of(worker) is None
