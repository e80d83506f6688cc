"""Faults of a run's environment that pass: the machine stops the run, starves it, or runs out of descriptors.

Afterwards everything must land, without a question to a human and without a lost attempt.
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

from chaos.faults import NOTHING, Episode, solve, subtask
from chaos.play import Played, play
from tests.e2e.stage import Going, Stage

TIMEOUT_S = 300.0
SUBTASKS = 6
STOPPED_S = 6.0  # longer than the limit for a silent call
PAUSES, AWAKE_S, ASLEEP_S = 15, 0.1, 0.9
NO_DESCRIPTORS_S = 3.0
PATIENT = {"FLEET_LIMITS_BACKOFF_FIRST_S": "0.5", "FLEET_LIMITS_BACKOFF_CAP_S": "4"}
"""The faults last for seconds of real time, so all retries together must take longer than that, as in a real run."""


@dataclass(frozen=True)
class PassingFault:
    """A row of the table in docs/internals/reliability.md."""

    row: int
    strike: Callable[[Stage, Going], None]


def _stop(_: Stage, going: Going) -> None:
    """Stop the run as a sleeping machine does: no time passes for it, and all its connections are silent."""
    with _stopped(going):
        sleep(STOPPED_S)


def _starve(stage: Stage, going: Going) -> None:
    """Leave the run one tenth of the processor."""
    del stage
    for _ in range(PAUSES):
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
    """For a while, no file, pipe or connection can be opened."""
    pid = going.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_now = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_now, before[1]))
    try:
        sleep(NO_DESCRIPTORS_S)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


PASSING_FAULTS: dict[str, PassingFault] = {
    "stopped for a while": PassingFault(58, _stop),
    "hardly any processor": PassingFault(63, _starve),
    "no descriptors for a while": PassingFault(53, _without_descriptors),
}


@dataclass(frozen=True)
class Survival:
    """Result of a run with a temporary fault."""

    kind: str
    landed: bool
    asked: bool
    lost_attempts: int
    reason: str
    """Failures of its attempts. Without any, the reason that the run gave at its end."""

    @property
    def unharmed(self) -> bool:
        return self.landed and not self.asked and not self.lost_attempts


def play_passing_fault(kind: str, number: int, folder: Path, seed: int) -> Survival:
    """One run that the fault strikes at a random moment."""
    chance = Random(f"{seed}/{kind}/{number}")  # noqa: S311 - not a secret
    calls = chance.randrange(1, 3 * SUBTASKS)

    def strike(stage: Stage, going: Going) -> None:
        stage.wait("r", lambda state: state.spent.calls >= calls or state.ended, going)
        PASSING_FAULTS[kind].strike(stage, going)

    names = [f"w{index}" for index in range(SUBTASKS)]
    episodes = []
    for index, name in enumerate(names):
        needs = names[index - 2 : index - 1] if index > 1 else []
        episodes.append(Episode(NOTHING, (subtask(name, depends_on=needs),), {name: [solve(name)]}, pace_s=0.3))
    run = play(
        folder / f"passing-{list(PASSING_FAULTS).index(kind)}-{number}",
        episodes,
        more=PATIENT,
        meanwhile=strike,
        timeout_s=TIMEOUT_S,
    )
    return _survival(kind, run)


def _survival(kind: str, run: Played) -> Survival:
    state = run.state
    failures = [attempt.failure for task in state.subtasks.values() for attempt in task.attempts if attempt.failure]
    lost = sum(task.counted for task in state.subtasks.values())
    reason = "; ".join(f"{failure.kind}: {failure.summary}" for failure in failures)
    landed, asked = run.done.code == 0, bool(state.questions)
    return Survival(kind, landed, asked, lost, reason or f"{state.ending}: {state.ending_why}")
