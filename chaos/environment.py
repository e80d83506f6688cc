"""What happens to a run from outside while it works: the machine stops it, starves it, runs out of something.

It passes, and then all of it must land, with no human asked and no attempt used up by it.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import sleep

from tests.chaos.faults import NOTHING, Episode, solve, subtask
from tests.chaos.play import Played, play
from tests.e2e.stage import Going, Stage

LONGEST_S = 300.0
SUBTASKS = 6
STOPPED_S = 6.0  # longer than a silent call is waited for
GASPS, AWAKE_S, ASLEEP_S = 15, 0.1, 0.9
WITHOUT_S = 3.0
PATIENT = {"FLEET_LIMITS_BACKOFF_FIRST_S": "0.5", "FLEET_LIMITS_BACKOFF_CAP_S": "4"}
"""Seconds of the machine's are not hurried: all retries together take longer than what happens to it, as they do."""


@dataclass(frozen=True)
class Event:
    """A row of the table in docs/reliability.md."""

    row: int
    happens: Callable[[Stage, Going], None]


def _stop(_: Stage, going: Going) -> None:
    """As a machine does that sleeps: no time passes for the run, and all its connections are silent meanwhile."""
    with _stopped(going):
        sleep(STOPPED_S)


def _starve(_: Stage, going: Going) -> None:
    """One tenth of the processor, in gasps."""
    for _gasp in range(GASPS):
        with _stopped(going):
            sleep(ASLEEP_S)
        sleep(AWAKE_S)


@contextmanager
def _stopped(going: Going) -> Iterator[None]:
    os.killpg(going.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(going.process.pid, signal.SIGCONT)


def _without_descriptors(_: Stage, going: Going) -> None:
    """No file, pipe or connection can be opened, for a while."""
    pid = going.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    there = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (there, before[1]))
    try:
        sleep(WITHOUT_S)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


WORLD: dict[str, Event] = {
    "stopped for a while": Event(58, _stop),
    "hardly any processor": Event(63, _starve),
    "no descriptors for a while": Event(53, _without_descriptors),
}


@dataclass(frozen=True)
class Weathered:
    """How a run got through it."""

    kind: str
    landed: bool
    asked: bool
    attempts_lost: int
    said: str

    @property
    def unharmed(self) -> bool:
        return self.landed and not self.asked and not self.attempts_lost


def weathered(kind: str, number: int, folder: Path, seed: int) -> Weathered:
    """One run, to which it happens at a moment that chance chooses."""
    chance = Random(f"{seed}/{kind}/{number}")  # noqa: S311 - it is no secret
    calls = chance.randrange(1, 3 * SUBTASKS)

    def happens(stage: Stage, going: Going) -> None:
        stage.wait("r", lambda state: state.spent.calls >= calls or state.ended, going)
        WORLD[kind].happens(stage, going)

    names = [f"w{one}" for one in range(SUBTASKS)]
    needs = {name: names[one - 2 : one - 1] if one > 1 else [] for one, name in enumerate(names)}
    played = [
        Episode(NOTHING, (subtask(name, depends_on=needs[name]),), {name: [solve(name)]}, pace_s=0.3) for name in names
    ]
    run = play(
        folder / f"world-{list(WORLD).index(kind)}-{number}",
        played,
        more=PATIENT,
        meanwhile=happens,
        longest_s=LONGEST_S,
    )
    return _told(kind, run)


def _told(kind: str, run: Played) -> Weathered:
    state = run.state
    attempts = [attempt for one in state.subtasks.values() for attempt in one.attempts]
    counted = sum(one.counted for one in state.subtasks.values())
    said = "; ".join(f"{attempt.failure.kind}: {attempt.failure.summary}" for attempt in attempts if attempt.failure)
    return Weathered(
        kind, run.done.code == 0, bool(state.questions), counted, said or f"{state.ending}: {state.ending_why}"
    )
