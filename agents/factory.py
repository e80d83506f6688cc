"""Opens the minds: one model client, one pace for all of them, the planner and a worker of every kind."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random, SystemRandom

from agents.models.calls import Caller, Patience
from agents.models.warming import Warmed
from agents.planner import ClaudePlanner
from agents.registry import Bench, describe, make_workers
from agents.settings import MindSettings
from agents.transcripts import Transcripts
from fleet.ports import CallGauges, Planner, Worker


@dataclass(frozen=True, slots=True)
class Minds:
    """All who think."""

    planner: Planner
    workers: dict[str, Worker]
    descriptions: dict[str, str]
    """What each worker is for."""
    gauges: Callable[[], CallGauges]
    """The calls to models, as they are now."""


@asynccontextmanager
async def open_minds(settings: MindSettings, *, chance: Random | None = None) -> AsyncIterator[Minds]:
    """The minds, for as long as the block lasts. Raises `UsageError` for settings that are none."""
    from agents.models.claude import Line, open_claude  # noqa: PLC0415 - the SDK takes a second to import

    line = Line(connect_s=settings.connect_s, silence_s=settings.silence_s, call_s=settings.call_s)
    async with open_claude(settings.base_url, settings.api_key, line) as model:
        caller = Caller(
            Warmed(model),
            patience_of(settings),
            settings.prices,
            chance=chance or SystemRandom(),
            fallbacks=settings.fallbacks,
        )
        transcripts = Transcripts(settings.transcripts, secret=settings.api_key)
        bench = Bench(settings, caller, transcripts)
        yield Minds(
            planner=ClaudePlanner(settings, caller, transcripts),
            workers=make_workers(bench),
            descriptions=describe(settings.workers),
            gauges=caller.service.gauges,
        )


def patience_of(settings: MindSettings) -> Patience:
    return Patience(
        retries=settings.retries,
        backoff_first_s=settings.backoff_first_s,
        backoff_cap_s=settings.backoff_cap_s,
        retry_after_cap_s=settings.retry_after_cap_s,
        pause_s=settings.pause_s,
    )
