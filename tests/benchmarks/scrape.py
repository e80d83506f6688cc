"""What a scrape costs while a hundred agents work, beside the same server with nothing to tell.

    python -m tests.benchmarks.scrape

Both sides answer over HTTP on loopback. On ours thousands of facts were read before, and a hundred agents are at work.
Before each turn they make as many new facts as in the second for which the exporter lets them wait.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import anyio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from dashboards.metrics.collector import Exposition
from dashboards.metrics.server import Address, serving
from fleet.cli.exporter import exporting
from fleet.core import facts as f
from fleet.core.policy import Policy
from fleet.core.usage import Usage
from fleet.folders import RunFolder
from fleet.journal import Journal, held
from tests.benchmarks.side_by_side import HEAD, Cost, Figure, Stopwatch, interleave, room, say
from tests.core.story import Story, plan_of

AGENTS, TURNS, NEW = 100, 40, 50
MORE_MS = 20.0


class Empty(Exposition):
    """A page with nothing on it."""

    def __init__(self) -> None:
        self._none = CollectorRegistry()

    def scrape(self, accept: str) -> tuple[bytes, str]:
        del accept
        return generate_latest(self._none), "text/plain"


def turn(story: Story, agent: int, number: int) -> f.ModelCalled:
    """A call of one agent."""
    return f.ModelCalled(
        at=story.now,
        role="worker",
        model="claude-haiku-5-5",
        usage=Usage(input=900, output=80, cache_read=9_000),
        dollars=0.001,
        seconds=2.0,
        subtask=f"task-{agent}",
        attempt=1,
        turn=number,
        doing="bash pytest -q",
    )


def busy() -> Story:
    """A hundred agents at work for a while, and a hundred subtasks that have landed."""
    lines = [f"task-{number}" for number in range(2 * AGENTS)]
    story = Story(Policy(workers=2 * AGENTS), plan_of(*lines))
    story.happens(*(f.WorkerStarted(at=0, subtask=id_, number=1) for id_ in lines))
    story.landed(*lines[AGENTS:])
    for number in range(TURNS):
        story.happens(*(turn(story, agent, number) for agent in range(AGENTS)))
    return story


@contextmanager
def at_work(folder: Path, story: Story) -> Iterator[Journal]:
    """The journal of a run that an engine holds."""
    run = RunFolder(folder / "runs" / "r")
    with Journal.create(run.journal) as journal, held(run.journal):
        journal.append(story.facts)
        yield journal


def fetch(there: Address) -> int:
    connection = HTTPConnection(there.host, there.port)
    with closing(connection):
        connection.request("GET", "/metrics")
        return len(connection.getresponse().read())


async def scrapes(rounds: int) -> list[Figure]:
    story = busy()
    with room() as folder, at_work(folder, story) as journal:
        run = RunFolder(folder / "runs" / "r")
        with (
            exporting(lambda: [run], folder, Address("127.0.0.1", 0)) as exporter,
            serving(Empty(), Address("127.0.0.1", 0)) as nothing,
        ):
            fetch(exporter.address)

            async def ours(number: int) -> Cost:
                journal.append([turn(story, agent % AGENTS, TURNS + number) for agent in range(NEW)])
                with Stopwatch() as watch:
                    fetch(exporter.address)
                return watch.cost

            async def empty(_: int) -> Cost:
                with Stopwatch() as watch:
                    fetch(nothing)
                return watch.cost

            costs = await interleave({"ours": ours, "empty": empty}, rounds)
    return [_figure(costs["ours"], costs["empty"])]


def _figure(ours: Sequence[Cost], empty: Sequence[Cost]) -> Figure:
    def more(pick: Callable[[Cost], float]) -> float:
        return median([pick(cost) for cost in ours]) - median([pick(cost) for cost in empty])

    return Figure(
        "a scrape adds to an empty one",
        f"{AGENTS} agents, ms",
        more(lambda cost: cost.wall),
        more(lambda cost: cost.processor),
        wanted=MORE_MS,
    )


def main() -> None:
    say(HEAD)
    for figure in anyio.run(scrapes, 30):
        say(figure)


if __name__ == "__main__":
    main()
