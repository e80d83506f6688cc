"""What a hundred reports cost in planner calls, where they come in while one call is under way.

Run it: python -m tests.benchmarks.planner_calls. The engine, the planner and its client are the product's own, and each
call goes over HTTP to the simulated model. Workers, worktrees and git are in memory: only when they report matters. The
first report opens a call that takes a while; meanwhile the other hundred come in, spread over its time, every fifth as
a failure. Counted are the calls that read one of the hundred.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import Event, create_task_group, sleep
from anyio.abc import TaskStatus

from agents.minds import open_minds
from agents.settings import MindSettings
from agents.simulated.script import parse_script
from agents.simulated.server import serve
from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.engine import Engine
from fleet.perform import Performer
from fleet.ports import Desk, Meter, WorkerBrief
from tests.benchmarks.side_by_side import HEAD, Figure, say
from tests.fleet.fakes import DONE, QUICK, FakeFleet

REPORTS = 100
CALL_S = 1.5
WANTED = 2.0
FIRST = "first"
STUCK = f.Failure(kind="check", summary="red", evidence="it is red")
RUN_S = 120.0


def script() -> dict[str, object]:
    ids = [FIRST, *(f"s{number}" for number in range(REPORTS))]
    add = [
        {"id": id_, "title": id_, "goal": id_, "acceptance": [{"criterion": "is there", "run": f"check {id_}"}]}
        for id_ in ids
    ]
    start = {"when": {"start": True}, "revision": {"assessment": "Many at once.", "add": add}}
    return {"planner": {"steps": [start], "pace": {"think_s": CALL_S}}}


@dataclass
class Together:
    """A worker whose subtasks end one after another within the time of a call: every fifth fails at first."""

    go: Event = field(default_factory=Event)
    model: str | None = "m"

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> f.Report | f.Failure:
        del desk, meter
        if brief.subtask.id == FIRST or brief.attempt > 1:
            return DONE
        number = int(brief.subtask.id[1:])
        await self.go.wait()
        await sleep(CALL_S * 0.6 * number / REPORTS)
        return STUCK if number % 5 == 0 else DONE


@asynccontextmanager
async def simulated(folder: Path) -> AsyncIterator[MindSettings]:
    async def play(*, task_status: TaskStatus[str]) -> None:
        await serve(parse_script(script()), on_ready=task_status.started)

    async with create_task_group() as servers:
        url = await servers.start(play)
        yield MindSettings(base_url=url, api_key="none-is-needed", transcripts=folder)
        servers.cancel_scope.cancel()


async def calls_that_read() -> tuple[int, int]:
    """The calls that read the hundred, and all calls of the run."""
    worker = Together()
    fleet = FakeFleet(policy=QUICK.model_copy(update={"workers": REPORTS + 1}))
    with TemporaryDirectory(prefix="fleet-bench-") as folder:
        async with simulated(Path(folder)) as settings, open_minds(settings) as minds:
            engine = Engine(fleet.memory.replayed(fleet.first), fleet.memory, fleet.clock)
            began = f.EngineStarted(at=fleet.clock.now(), epoch=1, pid=1, host="here", version="1")

            async def release() -> None:
                while FIRST not in engine.state.planning.reading.reports:  # noqa: ASYNC110 - the engine has no events
                    await sleep(0.005)
                worker.go.set()

            with anyio.fail_after(RUN_S):
                async with create_task_group() as sides:
                    sides.start_soon(release)
                    world = replace(fleet.world(), planner=minds.planner, workers={"coder": worker})
                    await engine.run(Performer(engine, world), began)
    return _count(fleet)


def _count(fleet: FakeFleet) -> tuple[int, int]:
    state, unheard, calls = evolve(None, fleet.first), {f"s{number}" for number in range(REPORTS)}, 0
    for fact in fleet.memory.facts:
        state = evolve(state, fact)
        if isinstance(fact, f.PlannerCalled) and (news := unheard & set(state.planning.reading.reports)):
            calls, unheard = calls + 1, unheard - news
    assert not unheard, f"nobody told the planner of {len(unheard)} reports"
    return calls, state.planning.calls


async def planner_figures() -> list[Figure]:
    calls, in_all = await calls_that_read()
    note = f"simulated model; {in_all} calls in the whole run"
    return [
        Figure("planner calls per 100 reports within one call", f"{REPORTS} reports", calls, wanted=WANTED, note=note)
    ]


if __name__ == "__main__":
    say(HEAD, *anyio.run(planner_figures))
