"""Opens the agents: one model client and one caller for all, the planner, and a worker of each configured name.

On a node there are only workers, one for each attempt, whose calls the manager makes.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random, SystemRandom

from agents.conversation.guards import Guards
from agents.conversation.loop import Conversation, ConversationSpec
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.cache_warmup import CacheWarmup
from agents.models.calls import Caller
from agents.models.client import Batches, open_client
from agents.models.text import fenced, render
from agents.models.transcripts import Transcripts
from agents.remote import CallLine, LineCalls, LineRelay, calls_of, no_calls
from agents.reviewer import ClaudeReviewer
from agents.tools.registry import PLANNER_TOOLS
from agents.tools.report import FindSubtasks, ReadReport
from agents.tools.submit_review import Submit, SubmitRevision
from agents.workers.command import has_acp, program_of
from agents.workers.registry import WorkerContext, describe, make_worker, make_workers
from agents.workers.relay import Relay
from fleet.core.facts.facts import Failure
from fleet.ports.agents import CallGauges, Meter, Planner, PlannerBrief, Repository, Reviewer, Worker
from fleet.ports.orders import OpenCalls


@dataclass(frozen=True, slots=True)
class Agents:
    """The planner and all workers."""

    planner: Planner
    workers: dict[str, Worker]
    descriptions: dict[str, str]
    """What each worker is for."""
    gauges: Callable[[], CallGauges]
    """The calls to models as they are now."""
    calls: OpenCalls = no_calls
    """Opens the calls of attempts that are made on nodes."""
    reviewer: Reviewer | None = None


@asynccontextmanager
async def open_agents(settings: AgentSettings, *, chance: Random | None = None) -> AsyncIterator[Agents]:
    """The agents, for as long as the block lasts. Raises `UsageError` for invalid settings."""
    async with open_client(settings.access, settings.timeouts) as client, AsyncExitStack() as stack:
        servers = None
        if settings.servers:
            from agents.tools.servers import open_servers  # noqa: PLC0415 - few runs have any

            servers = await stack.enter_async_context(open_servers(settings.servers))
        caller = Caller(
            CacheWarmup(client, settings.prices, lacks=client.lacks),
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
            reviewer=ClaudeReviewer(settings, caller, Batches(client), transcripts),
            workers=make_workers(context),
            descriptions=describe(settings.workers),
            gauges=caller.service.gauges,
            calls=calls_of(context, caller),
        )


def worker_on_node(settings: AgentSettings, name: str, line: CallLine) -> Worker:
    """A worker for one attempt, whose calls go to the manager. Raises `UsageError`."""
    transcripts = Transcripts(settings.transcripts, secrets=())

    def open_relay(*_: object) -> LineRelay:
        return LineRelay(line)

    return make_worker(name, WorkerContext(settings, LineCalls(line), transcripts, open_relay))


def workers_lacking(settings: AgentSettings) -> list[str]:
    """Workers that a node can't have: their program is not installed, or what they use can't be counted from there."""
    return [name for name, worker in settings.workers.items() if _is_lacking(worker)]


def _is_lacking(worker: WorkerSettings) -> bool:
    if worker.kind == "acp":
        return not has_acp() or not worker.calls_models
    return worker.kind == "claude-code" and program_of(worker) is None


# ---- planner ---------------------------------------------------------------------------------------------------------
# The planner: one conversation per call, from the epic and the state to one revision. It changes nothing itself.


_TAGS = re.compile(r"<(?=\s*/?\s*(?:epic|state|workers|notes|area|record)\b)", re.IGNORECASE)
_PAGE = 4
"""Entries of the record in one block. A block is complete before it is shared with later calls."""


@dataclass(frozen=True, slots=True)
class ClaudePlanner:
    """Plans with a model."""

    settings: AgentSettings
    caller: Caller
    transcripts: Transcripts

    async def plan(self, brief: PlannerBrief, repository: Repository, submit: Submit, meter: Meter) -> Failure | None:
        """Hand in one revision through `submit`, repaired until it holds together."""
        settings, state = self.settings, fenced("state", brief.state)
        settled, latest = _blocks(brief)
        model = brief.model or settings.planner.model
        accepts = await self.caller.limits(model)
        closing = settings.planner.repairs + 2  # a revision, its repairs, and one nudge
        exploring = (tool(repository, output_chars=settings.output_chars) for tool in PLANNER_TOOLS.values())
        spec: ConversationSpec[Failure | None] = ConversationSpec(
            model=model,
            max_tokens=settings.answer_tokens(accepts),
            system=render("planner", horizon=settings.planner.horizon),
            tools=(
                *exploring,
                FindSubtasks(brief.find, settings.output_chars),
                ReadReport(brief.report, settings.output_chars),
                SubmitRevision(submit, repairs=settings.planner.repairs),
            ),
            ending=SubmitRevision.name,
            effort=brief.effort or settings.planner.effort,
            recurs=True,
            guards=Guards(turns=settings.planner.explore_turns + closing, seconds=settings.planner_s, closing=closing),
            limits=settings.prompt_limits(model, accepts),
            reminder=state,
            shared=len(settled),
        )
        first = [*settled, *latest, state]
        with self.transcripts.open("planner", brief.call) as transcript:
            return await Conversation(spec, self.caller, meter, transcript).hold(first)


def epic_text(epic: str) -> str:
    """The epic, except that tags of ours, which would end its block, are escaped."""
    return _TAGS.sub("&lt;", epic)


def _blocks(brief: PlannerBrief) -> tuple[list[str], list[str]]:
    """What begins the first message: what the next call will begin with, too, and then what it may not."""
    parts = {"workers": brief.workers, "notes": brief.notes, "area": brief.area}
    settled = [f"<epic>{epic_text(brief.epic)}</epic>"]
    settled += [fenced(name, dict(part)) for name, part in parts.items() if part]
    pages = [brief.record[start : start + _PAGE] for start in range(0, len(brief.record), _PAGE)]
    whole = [fenced("record", list(page)) for page in pages if len(page) == _PAGE]
    rest = [fenced("record", list(page)) for page in pages if len(page) < _PAGE]
    return [*settled, *whole], rest
