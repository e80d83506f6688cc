"""A hundred workers in a storm of 429 and 529: our calls beside a perfect pacer, which knows the limit.

    python -m tests.benchmarks.storm

The simulated model runs in a process of its own, a fresh one each turn, with a limit and the same spells of weather.
The perfect pacer keeps the limit's own account, makes each call it grants, and asks again at once where weather struck.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from agents.models.answer import Answer, CallFault, Model, Request
from agents.models.calls import Caller, Patience
from agents.models.claude import Line, open_claude
from agents.transcripts import Transcript
from tests.benchmarks.meters import Open
from tests.benchmarks.side_by_side import HEAD, Figure, say

WORKERS = 100
A_SECOND = 60  # calls that the limit grants
PATIENCE = Patience(retries=4, backoff_first_s=1, backoff_cap_s=60, retry_after_cap_s=60, pause_s=2)
TOOL = {"name": "report", "description": "Report.", "input_schema": {"type": "object"}}
ATTEMPTED, PROCEEDS = 1.2, 0.90


@dataclass(frozen=True)
class Storm:
    """What one turn came to."""

    calls: int
    answers: int
    seconds: float


def weather(seconds: float) -> list[dict[str, object]]:
    """A tenth of all calls is turned away throughout; twice nobody gets through, for a tenth of the time in all."""
    return [
        {"from_s": 0.25 * seconds, "to_s": 0.30 * seconds},
        {"from_s": 0.60 * seconds, "to_s": 0.65 * seconds},
        {"from_s": 0, "to_s": 100 * seconds, "share": 0.05},
    ]


@asynccontextmanager
async def simulated(seconds: float, *, named: bool) -> AsyncIterator[str]:
    limits = {"requests_per_minute": 60 * A_SECOND, "burst_s": 1, "named": named}
    script = {"limits": limits, "weather": weather(seconds), "workers": {"*": {"attempts": [{"do": "claim"}]}}}
    program = (
        "import functools, pathlib, sys; from agents.simulated.server import run_simulation; "
        "run_simulation(pathlib.Path(sys.argv[1]), '127.0.0.1', 0, functools.partial(print, flush=True))"
    )
    with TemporaryDirectory(prefix="fleet-bench-") as folder:
        path = Path(folder) / "script.json"
        path.write_text(json.dumps(script), encoding="utf-8")
        command = [sys.executable, "-c", program, str(path)]
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:  # noqa: ASYNC220 - started before anything is measured
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split()[-1]
            finally:
                process.terminate()


def request(number: int) -> Request:
    check = [{"criterion": "it works", "run": "true"}]
    subtask = {"id": f"task-{number}", "title": "t", "goal": "g", "acceptance": check}
    text = f"<subtask>{json.dumps(subtask)}</subtask>\n<attempt>{json.dumps({'run': 'storm', 'number': 1})}</attempt>"
    block = {"type": "text", "text": text}
    return Request("claude-haiku-5-5", 1000, "", (TOOL,), ({"role": "user", "content": [block]},))


async def ours(model: Model, seconds: float) -> Storm:
    caller = Caller(model, PATIENCE, {}, chance=Random(1))  # noqa: S311 - jitter is no secret
    meter, answers = Open(), 0

    async def work(number: int) -> None:
        nonlocal answers
        while True:
            result = await caller.call(request(number), meter, Transcript(None), turn=1)
            answers += isinstance(result, Answer)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as workers:
            for number in range(WORKERS):
                workers.start_soon(work, number)
    return Storm(caller.service.gauges().calls, answers, seconds)


async def perfect(model: Model, seconds: float) -> Storm:
    """Keeps the limit's own account. What the weather turned away was not charged, and is asked again at once."""
    calls = answers = charged = under_way = 0

    async def call(number: int) -> None:
        nonlocal answers, charged, under_way
        under_way += 1
        result = await model.ask(request(number))
        under_way -= 1
        answers += isinstance(result, Answer)
        charged -= isinstance(result, CallFault) and result.kind == "outage"

    began = anyio.current_time()
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as workers:
            while True:
                granted = (anyio.current_time() - began + 1) * A_SECOND  # a second's worth may be taken at once
                charged = max(charged, int(granted) - A_SECOND)  # what nobody took in time is lost
                for _ in range(min(int(granted) - charged, WORKERS - under_way)):
                    workers.start_soon(call, calls % WORKERS)
                    calls, charged = calls + 1, charged + 1
                await anyio.sleep(1 / A_SECOND)
    return Storm(calls, answers, seconds)


Pacer = Callable[[Model, float], Awaitable[Storm]]
VARIANTS: dict[str, tuple[Pacer, bool]] = {
    "perfect": (perfect, True),
    "named": (ours, True),
    "unnamed": (ours, False),
}


async def turn(name: str, seconds: float) -> Storm:
    pacer, named = VARIANTS[name]
    async with simulated(seconds, named=named) as url, open_claude(url, "no-key", Line(15, 60, 120)) as model:
        return await pacer(model, seconds)


async def storm_figures(seconds: float, rounds: int) -> list[Figure]:
    """Calls for each answer, and answers over those of the perfect pacer, turn beside turn."""
    turns: dict[str, list[Storm]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name in VARIANTS:
            turns[name].append(await turn(name, seconds))
    found = []
    for name, said, wanted in (("named", "limits in headers", True), ("unnamed", "no headers", False)):
        calls = median(storm.calls / max(1, storm.answers) for storm in turns[name])
        share = median(mine.answers / other.answers for mine, other in zip(turns[name], turns["perfect"], strict=True))
        told = f"{median(storm.answers for storm in turns[name])} answers in {seconds:g} s"
        found += [
            Figure(f"storm, {said}: calls an answer", "100 workers", calls, wanted=ATTEMPTED if wanted else None),
            Figure(
                f"storm, {said}: answers of perfect",
                "100 workers",
                share,
                wanted=PROCEEDS if wanted else None,
                at_least=True,
                note=told,
            ),
        ]
    return found


if __name__ == "__main__":
    seconds_, rounds_ = [*map(float, sys.argv[1:]), 20.0, 3.0][:2] if len(sys.argv) > 2 else (20.0, 1.0)
    say(HEAD, *anyio.run(storm_figures, seconds_, int(rounds_)))
