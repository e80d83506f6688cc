"""Number of planner calls for a hundred reports that arrive during one call.

The engine, the planner and its client are the product's, and each call goes over HTTP to the simulated model. Workers,
worktrees and git are in memory, because only the times of reports matter. The first report starts a slow call. The
other hundred arrive during that call, every fifth of them as a failure. The result counts the calls that read at least
one of the hundred.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
from anyio import Event, create_task_group, sleep
from anyio.abc import TaskStatus

from agents.conversation.settings import AgentSettings
from agents.factory import open_agents
from agents.simulated.script import parse_script
from agents.simulated.server import serve
from bench.meters import product_agents
from bench.service import planner_cost_figures
from bench.side_by_side import Extent
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.engine.loop import Engine
from fleet.engine.perform import Performer
from fleet.ports.agents import Meter, WorkerBrief, Workspace
from scripts.frame import Figure, temporary_folder
from tests.fleet.fakes import DONE, QUICK, FakeFleet

REPORTS = 100
CALL_S = 1.5
WANTED = 2.0
FIRST = "first"
CHECK_FAILED = f.Failure(kind="check", summary="red", evidence="it is red")
TIMEOUT_S = 120.0


async def planner_figures(extent: Extent) -> list[Figure]:
    """Planner calls per hundred reports that arrive during one call."""
    with temporary_folder(extent.folder) as folder:
        reading, total = await count_calls(folder)
    measure, note = "planner calls per 100 reports within one call", f"simulated model; {total} calls in the whole run"
    calls = Figure(measure, f"{REPORTS} reports", reading, wanted=WANTED, note=note)
    return [calls, *await planner_cost_figures(extent.folder)]


async def count_calls(folder: Path) -> tuple[int, int]:
    """The calls that read the hundred reports, and all calls of the run."""
    worker = TimedWorker()
    fleet = FakeFleet(policy=QUICK.model_copy(update={"workers": REPORTS + 1}))
    async with simulated_agents(folder) as settings, open_agents(settings) as agents:
        engine = Engine(fleet.memory.replayed(fleet.first), fleet.memory, fleet.clock)
        started = f.EngineStarted(at=fleet.clock.now(), epoch=1, pid=1, host="here", version="1")

        async def release_reports() -> None:
            while FIRST not in engine.state.planning.reading.reports:  # noqa: ASYNC110 - the engine has no events
                await sleep(0.005)
            worker.released.set()

        with anyio.fail_after(TIMEOUT_S):
            async with create_task_group() as tasks:
                tasks.start_soon(release_reports)
                world = replace(fleet.world(), planner=agents.planner, workers={"coder": worker})
                await engine.run(Performer(engine, world), started)
    return _count(fleet)


def _count(fleet: FakeFleet) -> tuple[int, int]:
    state, unread, reading = evolve(None, fleet.first), {f"s{number}" for number in range(REPORTS)}, 0
    for fact in fleet.memory.facts:
        state = evolve(state, fact)
        if isinstance(fact, f.PlannerCalled) and (news := unread & set(state.planning.reading.reports)):
            reading, unread = reading + 1, unread - news
    assert not unread, f"the planner never read {len(unread)} reports"
    return reading, state.planning.calls


@dataclass
class TimedWorker:
    """A worker whose subtasks report one after another during a call: every fifth fails at first."""

    released: Event = field(default_factory=Event)
    model: str | None = "m"

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> f.Report | f.Failure:
        del workspace, meter
        if brief.subtask.id == FIRST or brief.attempt > 1:
            return DONE
        number = int(brief.subtask.id[1:])
        await self.released.wait()
        await sleep(CALL_S * 0.6 * number / REPORTS)
        return CHECK_FAILED if number % 5 == 0 else DONE


@asynccontextmanager
async def simulated_agents(folder: Path) -> AsyncIterator[AgentSettings]:
    async def play(*, task_status: TaskStatus[str]) -> None:
        await serve(parse_script(script()), on_ready=task_status.started)

    async with create_task_group() as servers:
        url = await servers.start(play)
        yield product_agents(url, folder)
        servers.cancel_scope.cancel()


def script() -> dict[str, object]:
    ids = [FIRST, *(f"s{number}" for number in range(REPORTS))]
    add = [
        {"id": id_, "title": id_, "goal": id_, "acceptance": [{"criterion": "it exists", "run": f"check {id_}"}]}
        for id_ in ids
    ]
    start = {"when": {"start": True}, "revision": {"assessment": "Many at once.", "add": add}}
    return {"planner": {"steps": [start], "pace": {"think_s": CALL_S}}}
