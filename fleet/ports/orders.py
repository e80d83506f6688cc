"""What the engine asks of a machine that works for a run: attempts and checks, as orders that can travel.

An order says everything that a node needs besides the objects of git that it names, and its result is a value, so that
it makes no difference whether the work is done in this process or on another machine.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, Report
from fleet.core.plans.plan import Criterion
from fleet.ports.agents import AttemptCalls, Meter, WorkerBrief
from fleet.ports.journal import Recorder
from fleet.ports.worktrees import Change, EffectError, Signature


@dataclass(frozen=True, slots=True)
class Began:
    """The worker has its worktree."""

    node: str = ""
    """The node that works; empty: this process."""


@dataclass(frozen=True, slots=True)
class Worked:
    """The worker has ended: from here on the work is not done twice."""


Progress = Began | Worked
Tell = Callable[[Progress], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """One attempt at a subtask: a worktree at `base`, the worker's work there, and its commit."""

    base: Sha
    worker: str
    brief: WorkerBrief
    labels: frozenset[str] = frozenset()
    """What the machine must have that does it. They do not travel."""

    def signature(self, report: Report | None) -> Signature:
        """What the message of its commit says. Without a report that says done, the work is unfinished."""
        brief, finished = self.brief, report is not None and report.status == "done"
        return Signature(
            run=brief.run,
            subtask=brief.subtask.id,
            attempt=brief.attempt,
            title=brief.subtask.title if finished else f"Unfinished: {brief.subtask.title}",
            body=report.summary if report is not None else "",
            worker=self.worker,
            model=brief.model,
            unfinished=not finished,
        )


@dataclass(frozen=True, slots=True)
class ChecksOrder:
    """Checks on a commit, each on a clean worktree of its own."""

    commit: Sha
    criteria: tuple[Criterion, ...]
    lands: bool = False
    """Whether a verdict rests on them that no node reaches by itself: what finished work in the merge queue waits for,
    or what a node found red. They come first."""
    labels: frozenset[str] = frozenset()
    """What the machine must have that does them. They do not travel."""


Order = AttemptOrder | ChecksOrder


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What a worker left behind: its report or failure, and its commit, if one could be made."""

    outcome: Report | Failure
    committed: Change | Failure

    @property
    def finished(self) -> bool:
        return isinstance(self.outcome, Report) and self.outcome.status == "done"


OpenCalls = Callable[[AttemptOrder, Meter], AbstractContextManager[AttemptCalls]]
"""Opens the calls of one attempt that is made on a node: within its budget, and recorded as they happen."""


class Node(Protocol):
    """Carries out orders. What can't be carried out raises `EffectError`."""

    async def attempt(self, order: AttemptOrder, meter: Meter, tell: Tell) -> AttemptResult: ...

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        """The results in the order of the criteria. Raises `SetupFailedError` where the commit breaks the set-up."""
        ...


@dataclass(frozen=True, slots=True)
class OtherMachines:
    """Other machines that work for a run."""

    beside: Callable[[Node, Recorder], Node]
    """Puts them and this one behind one door. What becomes of them is recorded."""
    distrust: Callable[[str, str], None]
    """Gives a machine nothing any more, and why: what it reported was not true."""
    rest: Callable[[str, str], None]
    """Gives a machine nothing for a while, and why: something about it is broken."""


class NodeFailedError(EffectError):
    """An order could not be carried out on another machine. It says nothing about this one, or its disk."""
