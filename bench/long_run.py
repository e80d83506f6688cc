"""The cost of a run with thousands of facts: a scrape of its metrics, and a resume.

*Scrape*: fleet's exporter and an exporter without runs both respond over HTTP on loopback. Fleet's exporter has read
thousands of facts before, and a hundred agents are working. Before each turn they record as many facts as in the second
for which the exporter caches its response.

*Resume*: a run of a thousand subtasks, half of them landed. Fleet's side ends when the engine has decided, recorded its
decisions and issued the first command. The other side only replays the journal. Opening the store is not included,
because it does not depend on the length of a run.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import anyio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from bench.side_by_side import Cost, Extent, Stopwatch, interleave, typical
from dashboards.address import Address
from dashboards.metrics.server import Exposition, exporting, serving
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.effects import Command
from fleet.engine.loop import Engine, SystemClock
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, temporary_folder
from tests.fleet.core.story import Story, plan_of

AGENTS, TURNS, NEW_FACTS = 100, 40, 50
EXTRA_MS = 20.0
SUBTASKS, TURNS_EACH, RESUMES = 1_000, 4, 5
RESUME_AT_MOST = 2.0


def model_call(story: Story, agent: int, turn: int) -> f.ModelCalled:
    return f.ModelCalled(
        at=story.now,
        role="worker",
        model="claude-haiku-5-5",
        usage=Usage(input=900, output=80, cache_read=9_000),
        dollars=0.001,
        seconds=2.0,
        subtask=f"task-{agent}",
        attempt=1,
        turn=turn,
        doing="bash pytest -q",
    )


# ---- scrape ----------------------------------------------------------------------------------------------------------


class EmptyExposition(Exposition):
    """A page without metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

    def scrape(self, accept: str) -> tuple[bytes, str]:
        del accept
        return generate_latest(self._registry), "text/plain"


async def scrape_figures(extent: Extent) -> list[Figure]:
    """Measure a scrape while a hundred agents work, compared with a server without runs."""
    story = busy_run()
    with temporary_folder() as folder, running(folder, story) as journal:
        run = RunFolder(folder / "runs" / "r")
        with (
            exporting(lambda: [run], folder, Address("127.0.0.1", 0)) as exporter,
            serving(EmptyExposition(), Address("127.0.0.1", 0)) as empty_server,
        ):
            fetch(exporter.address)

            async def fleet(number: int) -> Cost:
                facts = [model_call(story, agent % AGENTS, TURNS + number) for agent in range(NEW_FACTS)]
                journal.append(facts)
                with Stopwatch() as watch:
                    fetch(exporter.address)
                return watch.cost

            async def empty(_: int) -> Cost:
                with Stopwatch() as watch:
                    fetch(empty_server)
                return watch.cost

            costs = await interleave({"fleet": fleet, "empty": empty}, 4 * extent.rounds)
    return [_extra(costs["fleet"], costs["empty"])]


def _extra(fleet: Sequence[Cost], empty: Sequence[Cost]) -> Figure:
    def difference(part: Callable[[Cost], float]) -> float:
        return median([part(cost) for cost in fleet]) - median([part(cost) for cost in empty])

    return Figure(
        "a scrape adds to an empty one",
        f"{AGENTS} agents, ms",
        difference(lambda cost: cost.wall),
        difference(lambda cost: cost.processor),
        wanted=EXTRA_MS,
    )


def busy_run() -> Story:
    """A hundred agents that have worked for a while, and a hundred subtasks that have landed."""
    ids = [f"task-{number}" for number in range(2 * AGENTS)]
    story = Story(Policy(workers=2 * AGENTS), plan_of(*ids))
    story.happens(*(f.WorkerStarted(at=0, subtask=id_, number=1) for id_ in ids))
    story.landed(*ids[AGENTS:])
    for turn in range(TURNS):
        story.happens(*(model_call(story, agent, turn) for agent in range(AGENTS)))
    return story


@contextmanager
def running(folder: Path, story: Story) -> Iterator[Journal]:
    """The journal of a run, locked as by an engine."""
    run = RunFolder(folder / "runs" / "r")
    with Journal.create(run.journal) as journal, engine_lock(run.journal):
        journal.append(story.facts)
        yield journal


def fetch(address: Address) -> int:
    connection = HTTPConnection(address.host, address.port)
    with closing(connection):
        connection.request("GET", "/metrics")
        return len(connection.getresponse().read())


# ---- resume ----------------------------------------------------------------------------------------------------------


async def resume_figures(extent: Extent) -> list[Figure]:
    """Resuming a run of a thousand subtasks up to its first command, compared with replaying its journal."""
    with temporary_folder(extent.folder) as folder:
        path = folder / "run" / "journal.db"
        with Journal.create(path) as journal:
            journal.append(half_landed_run().facts)
            count = len(journal.facts())

        async def fleet(number: int) -> Cost:
            copy = _copy(path, folder / f"fleet-{number}")
            with Stopwatch() as watch:
                await _resume_to_first_command(copy)
            return watch.cost

        async def replay_only(number: int) -> Cost:
            copy = _copy(path, folder / f"replay-{number}")
            with Stopwatch() as watch:
                RunFolder(copy.parent).state()
            return watch.cost

        costs = await interleave({"fleet": fleet, "replay": replay_only}, RESUMES)
    resumed, replayed = typical(costs["fleet"]), typical(costs["replay"])
    wall, processor = resumed.wall / replayed.wall, resumed.processor / replayed.processor
    return [Figure("resume, to the first command", f"{count:,} facts", wall, processor, wanted=RESUME_AT_MOST)]


def half_landed_run() -> Story:
    """A run of which half of the subtasks have landed, and the others are running or ready."""
    ids = [f"task-{number}" for number in range(SUBTASKS)]
    story = Story(Policy(workers=SUBTASKS // 2), plan_of(*ids))
    for turn in range(TURNS_EACH):
        story.happens(*(model_call(story, agent, turn) for agent in range(SUBTASKS // 2)))
    story.landed(*ids[: SUBTASKS // 2])
    return story


def _copy(journal: Path, folder: Path) -> Path:
    shutil.copytree(journal.parent, folder)
    return folder / journal.name


async def _resume_to_first_command(path: Path) -> None:
    with engine_lock(path), Journal(path) as journal, anyio.CancelScope() as scope:
        state = RunFolder(path.parent).state()
        clock = SystemClock()

        async def perform(command: Command) -> None:
            del command
            scope.cancel()
            await anyio.sleep_forever()

        started = f.EngineStarted(at=clock.now(), epoch=state.epoch + 1, pid=1, host="here", version="1")
        await Engine(state, journal, clock).run(perform, started)
