"""What the engine asks of a machine that works for a run: attempts and checks, as orders that can travel.

An order says everything that a node needs besides the objects of git that it names, and its result is a value, so that
it makes no difference whether the work is done in this process or on another machine.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from fleet.core.state.facts import CheckRun, Failure, Report
from fleet.ports.agents import Meter, WorkerBrief
from fleet.ports.worktrees import Change

Progress = Literal[
    "started",  # the worker has its worktree
    "worked",  # the worker has ended: from here on the work is not done twice
]
Tell = Callable[[Progress], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """One attempt at a subtask: a worktree at `base`, the worker's work there, and its commit."""

    base: Sha
    worker: str
    brief: WorkerBrief


@dataclass(frozen=True, slots=True)
class ChecksOrder:
    """Checks on a commit, each on a clean worktree of its own."""

    commit: Sha
    criteria: tuple[Criterion, ...]
    lands: bool = False
    """Whether finished work waits for them in the merge queue: then they come before those of attempts."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What a worker left behind: its report or failure, and its commit, if one could be made."""

    outcome: Report | Failure
    committed: Change | Failure

    @property
    def finished(self) -> bool:
        return isinstance(self.outcome, Report) and self.outcome.status == "done"


class AttemptMeter(Meter, Protocol):
    """The budget of one attempt."""

    @property
    def called(self) -> bool:
        """Whether a call to a model was made."""
        ...


class Node(Protocol):
    """Carries out orders. What can't be carried out raises `EffectError`."""

    async def attempt(self, order: AttemptOrder, meter: AttemptMeter, tell: Tell) -> AttemptResult: ...

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        """The results in the order of the criteria. Raises `SetupFailedError` where the commit breaks the set-up."""
        ...
