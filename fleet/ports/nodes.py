"""What the engine asks of a machine that works for a run: attempts and checks, as orders that can travel.

An order says everything that a node needs besides the objects of git that it names, and its result is a value, so that
it makes no difference whether the work is done in this process or on another machine.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import CheckRun, Failure, Report, SetupRun
from fleet.core.plans.plan import Criterion
from fleet.ports.agents import AttemptCalls, Meter, Sign, WorkerBrief
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


class AttemptMeter(Meter, Protocol):
    """The budget of one attempt."""

    @property
    def called(self) -> bool:
        """Whether a call to a model was made."""
        ...


OpenCalls = Callable[[AttemptOrder, AttemptMeter], AbstractContextManager[AttemptCalls]]
"""Opens the calls of one attempt that is made on a node: within its budget, and recorded as they happen."""


class Node(Protocol):
    """Carries out orders. What can't be carried out raises `EffectError`."""

    async def attempt(self, order: AttemptOrder, meter: AttemptMeter, tell: Tell) -> AttemptResult: ...

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


# ---- orders on other machines


class NodeLostError(Exception):
    """A node is gone, or was silent for so long that it has stopped by itself. What it was doing is done elsewhere."""


class NodeFailedError(EffectError):
    """An order could not be carried out on another machine. It says nothing about this one, or its disk."""


class UnknownOrderError(Exception):
    """A host holds no order of this key: it was acknowledged, or its process was killed."""


@dataclass(frozen=True, slots=True)
class AttemptDone:
    """The report of an attempt. What a node committed comes as a pack: no disk is shared."""

    outcome: Report | Failure
    commit: Sha | None = None
    refused: Failure | None = None
    """Why there is no commit."""
    pack: bytes = field(default=b"", repr=False)
    transcript: bytes = field(default=b"", repr=False)
    """The conversation or the program's output, as `fleet logs` reads it."""


@dataclass(frozen=True, slots=True)
class ChecksDone:
    """The report of checks, in the order of the criteria."""

    runs: tuple[CheckRun, ...]
    setups: tuple[SetupRun, ...] = ()
    """What the set-up command did there since the report before."""
    logs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Whole outputs, by the names that runs and set-ups have for them there."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """The report of an order that could not be carried out."""

    failure: Failure
    setup: CheckRun | None = None
    """The set-up command, where the commit breaks it."""
    logs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


OrderReport = AttemptDone | ChecksDone | NotDone
NumberedEvent = Progress | OrderReport
OrderEvent = NumberedEvent | Sign


class NodeHost(Protocol):
    """A machine that works for a run. All its verbs may be repeated: an order is named by its key, and done once."""

    async def start(self, key: str, order: Order) -> None:
        """Begin an order, unless it was begun already."""
        ...

    def follow(self, key: str, since: int = 0) -> AsyncGenerator[OrderEvent, None]:
        """Its events from a number on; a report is the last one. Raises `UnknownOrderError` where it is not held.

        Signs have no number: whoever follows gets those that are still to be answered.
        """
        ...

    async def answer(self, key: str, number: int, at: int, part: bytes, *, last: bool) -> None:
        """A part of the answer to a call that the order asked for."""
        ...

    async def instruct(self, key: str, number: int, instruction: Instruction) -> None:
        """What the operator tells the attempt, by its number."""
        ...

    async def cancel(self, key: str) -> None:
        """Stop an order, which then ends with a report that says so."""
        ...

    async def acknowledge(self, key: str) -> None:
        """Let the host forget an order whose report has arrived."""
        ...


class Objects(Protocol):
    """The manager's objects: what a node lacks of them, and what comes from it."""

    def pack(self, commit: Sha, have: Sequence[Sha]) -> AsyncIterator[bytes]: ...

    async def take_in(self, order: AttemptOrder, done: AttemptDone, *, late: bool = False) -> Change | Failure:
        """Commit what a node made. Raises `NodeLiedError` where it can't be honest work."""
        ...

    async def keep_log(self, commit: Sha | None, command: str, text: bytes) -> str:
        """Keep the log of a check on a commit, or of a set-up, beside those of this machine. Its name among them."""
        ...


class NodeLiedError(Exception):
    """A node sent what it may not send."""
