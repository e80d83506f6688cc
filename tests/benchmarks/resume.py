"""What it takes to go on with a run of a thousand subtasks, beside replaying its journal and nothing else.

    python -m tests.benchmarks.resume

Half of the subtasks have landed. Ours ends when the engine has decided, written that down, and hands out the first
work; opening the store is not in it, because that does not depend on how long a run was.
"""

import shutil
from pathlib import Path

import anyio

from fleet.clock import SystemClock
from fleet.core import facts as f
from fleet.core.commands import Command
from fleet.core.policy import Policy
from fleet.engine import Engine
from fleet.journal import Journal, held, replay
from tests.benchmarks.scrape import turn
from tests.benchmarks.side_by_side import HEAD, Cost, Figure, Stopwatch, interleave, room, say, typical
from tests.core.story import Story, plan_of

SUBTASKS, TURNS, ROUNDS = 1_000, 4, 5
AT_MOST = 2.0


def halfway() -> Story:
    """A run of many subtasks, of which half have landed, and the others are at work or wait for their turn."""
    lines = [f"task-{number}" for number in range(SUBTASKS)]
    story = Story(Policy(workers=SUBTASKS // 2), plan_of(*lines))
    for number in range(TURNS):
        story.happens(*(turn(story, agent, number) for agent in range(SUBTASKS // 2)))
    story.landed(*lines[: SUBTASKS // 2])
    return story


async def resumes(rounds: int = ROUNDS) -> list[Figure]:
    with room() as folder:
        path = folder / "run" / "journal.db"
        with Journal.create(path) as journal:
            journal.append(halfway().facts)
            many = len(journal.facts())

        async def ours(number: int) -> Cost:
            copy = _copied(path, folder / f"ours-{number}")
            with Stopwatch() as watch:
                await _to_the_first_work(copy)
            return watch.cost

        async def alone(number: int) -> Cost:
            copy = _copied(path, folder / f"alone-{number}")
            with Stopwatch() as watch, Journal(copy) as journal:
                replay(journal.facts())
            return watch.cost

        costs = await interleave({"ours": ours, "alone": alone}, rounds)
    went_on, replayed = typical(costs["ours"]), typical(costs["alone"])
    value, processor = went_on.wall / replayed.wall, went_on.processor / replayed.processor
    return [Figure("resume, to the first work", f"{many:,} facts", value, processor, wanted=AT_MOST)]


def _copied(journal: Path, to: Path) -> Path:
    shutil.copytree(journal.parent, to)
    return to / journal.name


async def _to_the_first_work(path: Path) -> None:
    with held(path), Journal(path) as journal, anyio.CancelScope() as until:
        state = replay(journal.facts())
        if state is None:
            raise RuntimeError("the journal is empty")
        clock = SystemClock()

        async def perform(command: Command) -> None:
            del command
            until.cancel()
            await anyio.sleep_forever()

        started = f.EngineStarted(at=clock.now(), epoch=state.epoch + 1, pid=1, host="here", version="1")
        await Engine(state, journal, clock).run(perform, started)


def main() -> None:
    say(HEAD)
    for figure in anyio.run(resumes):
        say(figure)


if __name__ == "__main__":
    main()
