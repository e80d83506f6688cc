"""A hundred workers in a storm of 429 and 529: fleet's calls compared with a perfect rate limiter.

The simulated model runs in a separate process, started again for each turn, with a limit and the same fault windows.
The perfect limiter knows the limit: it keeps the service's account, makes each call that fits, and immediately repeats
each call rejected in a fault window.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from statistics import median

import anyio

from agents.models.access import Access
from agents.models.answer import Answer, CallFault, Model, Request
from agents.models.calls import Caller
from agents.models.client import open_client
from agents.models.exchange import Timeouts
from agents.models.service import RetryPolicy
from agents.models.transcripts import Transcript
from bench.meters import UnlimitedMeter
from bench.side_by_side import Extent
from scripts.frame import Figure, temporary_folder

WORKERS = 100
CALLS_PER_S = 60  # that the limit grants
RETRY = RetryPolicy(retries=4, backoff_first_s=1, backoff_cap_s=60, retry_after_cap_s=60, pause_s=2)
TOOL = {"name": "report", "description": "Report.", "input_schema": {"type": "object"}}
MAX_CALLS_PER_ANSWER, MIN_SHARE = 1.2, 0.90


async def storm_figures(extent: Extent) -> list[Figure]:
    """Calls per answer, and answers divided by those of the perfect limiter, in turns."""
    storms: dict[str, list[Storm]] = {name: [] for name in CALLERS}
    for _ in range(extent.whole_runs):
        for name in CALLERS:
            storms[name].append(await run_storm(name, extent.storm_s))
    figures = []
    for name, label, has_target in (("headers", "limits in headers", True), ("no headers", "no headers", False)):
        calls = median(storm.calls / max(1, storm.answers) for storm in storms[name])
        pairs = zip(storms[name], storms["perfect"], strict=True)
        share = median(fleet.answers / perfect.answers for fleet, perfect in pairs)
        where, note = f"{WORKERS} workers", f"{median(storm.answers for storm in storms[name])} answers"
        most, least = (MAX_CALLS_PER_ANSWER, MIN_SHARE) if has_target else (None, None)
        figures += [
            Figure(f"storm, {label}: calls per answer", where, calls, wanted=most),
            Figure(f"storm, {label}: answers of perfect", where, share, wanted=least, at_least=True, note=note),
        ]
    return figures


@dataclass(frozen=True)
class Storm:
    """The result of one turn."""

    calls: int
    answers: int


async def run_storm(name: str, seconds: float) -> Storm:
    caller, named = CALLERS[name]
    async with (
        simulated_model(seconds, named=named) as url,
        open_client(Access(url, "no-key"), Timeouts(60, 120)) as model,
    ):
        return await caller(model, seconds)


async def call_as_fleet(model: Model, seconds: float) -> Storm:
    caller = Caller(model, RETRY, {}, chance=Random(1))  # noqa: S311 - jitter is no secret
    meter, answers = UnlimitedMeter(), 0

    async def work(number: int) -> None:
        nonlocal answers
        while True:
            result = await caller.call(request(number), meter, Transcript(None), turn=1)
            answers += isinstance(result, Answer)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as workers:
            for number in range(WORKERS):
                workers.start_soon(work, number)
    return Storm(caller.service.gauges().calls, answers)


async def call_perfectly(model: Model, seconds: float) -> Storm:
    """Keep the same account as the service. Calls rejected by a fault window are not charged and repeated at once."""
    calls = answers = charged = under_way = 0

    async def call(number: int) -> None:
        nonlocal answers, charged, under_way
        under_way += 1
        result = await model.ask(request(number), lambda _: None)
        under_way -= 1
        answers += isinstance(result, Answer)
        charged -= isinstance(result, CallFault) and result.kind == "outage"

    started = anyio.current_time()
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as workers:
            while True:
                granted = (anyio.current_time() - started + 1) * CALLS_PER_S  # the calls of a second may come at once
                charged = max(charged, int(granted) - CALLS_PER_S)  # calls that were not used in time are lost
                for _ in range(min(int(granted) - charged, WORKERS - under_way)):
                    workers.start_soon(call, calls % WORKERS)
                    calls, charged = calls + 1, charged + 1
                await anyio.sleep(1 / CALLS_PER_S)
    return Storm(calls, answers)


CALLERS: dict[str, tuple[Callable[[Model, float], Awaitable[Storm]], bool]] = {
    "perfect": (call_perfectly, True),
    "headers": (call_as_fleet, True),
    "no headers": (call_as_fleet, False),
}
"""Each caller, and whether the service names its limits in the headers of its answers."""


@asynccontextmanager
async def simulated_model(seconds: float, *, named: bool) -> AsyncIterator[str]:
    limits = {"requests_per_minute": 60 * CALLS_PER_S, "burst_s": 1, "named": named}
    workers = {"*": {"attempts": [{"do": "claim"}]}}
    script = {"limits": limits, "weather": fault_windows(seconds), "workers": workers}
    with temporary_folder() as folder:
        path = folder / "script.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        command = [sys.executable, "-m", "fleet", "simulate", str(path)]
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: ASYNC220 - started before anything is measured
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split()[-1]
            finally:
                process.terminate()


def fault_windows(seconds: float) -> list[dict[str, object]]:
    """Return fault windows: 5 % of calls are rejected throughout, and all calls during two short windows."""
    return [
        {"from_s": 0.25 * seconds, "to_s": 0.30 * seconds},
        {"from_s": 0.60 * seconds, "to_s": 0.65 * seconds},
        {"from_s": 0, "to_s": 100 * seconds, "share": 0.05},
    ]


def request(number: int) -> Request:
    check = [{"criterion": "it works", "run": "true"}]
    subtask = {"id": f"task-{number}", "title": "t", "goal": "g", "acceptance": check}
    text = f"<subtask>{json.dumps(subtask)}</subtask>\n<attempt>{json.dumps({'run': 'storm', 'number': 1})}</attempt>"
    block = {"type": "text", "text": text}
    return Request("claude-haiku-5-5", 1000, "", (TOOL,), ({"role": "user", "content": [block]},))
