"""The orders from the engine to a machine that works for a run: attempts and checks.

An order contains all input except the git objects that it names, and its result is a value. So the work can be done in
this process or on another machine.
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
class WorktreeReady:
    """The worker has its worktree."""

    node: str = ""
    """The node, or empty for this process."""


@dataclass(frozen=True, slots=True)
class WorkerFinished:
    """The worker has ended. From here on the work is not repeated."""


Progress = WorktreeReady | WorkerFinished
Tell = Callable[[Progress], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """One attempt at a subtask: a worktree at `base`, the worker's work there, and its commit."""

    base: Sha
    worker: str
    brief: WorkerBrief
    labels: frozenset[str] = frozenset()
    """The labels that the machine must have. They are not sent."""

    def signature(self, report: Report | None) -> Signature:
        """The contents of its commit message. Without a report with the status `done`, the work is unfinished."""
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
    """Checks on a commit, each in a separate clean worktree."""

    commit: Sha
    criteria: tuple[Criterion, ...]
    lands: bool = False
    """Whether they decide about landing, or repeat a failure from a node. A node's verdict is not enough for these, and
    they run first."""
    labels: frozenset[str] = frozenset()
    """The labels that the machine must have. They are not sent."""


Order = AttemptOrder | ChecksOrder


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of a worker: its report or failure, and its commit, if there is one."""

    outcome: Report | Failure
    committed: Change | Failure

    @property
    def finished(self) -> bool:
        return isinstance(self.outcome, Report) and self.outcome.status == "done"


OpenCalls = Callable[[AttemptOrder, Meter], AbstractContextManager[AttemptCalls]]
"""Opens the calls of an attempt on a node, within its budget. Each call is recorded."""


class Node(Protocol):
    """Carries out orders. Raises `EffectError` if that is impossible."""

    async def attempt(self, order: AttemptOrder, meter: Meter, tell: Tell) -> AttemptResult: ...

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        """The results in the order of the criteria. Raises `SetupFailedError` if the commit breaks the setup."""
        ...


@dataclass(frozen=True, slots=True)
class OtherMachines:
    """Other machines that work for a run."""

    beside: Callable[[Node, Recorder], Node]
    """Combines them with this machine. Changes of their status are recorded."""
    distrust: Callable[[str, str], None]
    """Stops using a machine, with the reason: its reports were wrong."""
    rest: Callable[[str, str], None]
    """Pauses a machine, with the reason: it does not work correctly."""


class NodeFailedError(EffectError):
    """An order failed on another machine, for a reason unrelated to this one."""
