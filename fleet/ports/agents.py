"""What the engine needs of the world: minds, hands, a memory and a clock. It knows domain types and no adapter."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.core.facts import CheckRun, Failure, Member, Report, ServiceCondition
from fleet.core.ids import RunId, Sha, SubtaskId
from fleet.core.plan import Criterion, Subtask
from fleet.core.revision import Revision
from fleet.core.usage import Cost, Usage
from fleet.core.validate import Problem
from fleet.errors import FleetError as FleetError  # noqa: PLC0414 - a part of the contract with adapters
from fleet.errors import UsageError as UsageError  # noqa: PLC0414


class Broken(Exception):  # noqa: N818 - it is a state, not a mistake in the code
    """An effect could not be carried out; what the engine records instead of a result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


class Drained(Exception):  # noqa: N818 - it is a state, not a mistake in the code
    """The run is drained, and this would have to wait: it is left as it is, and begun again when the run is resumed."""


# ---- minds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelUse:
    """One finished call to a model."""

    model: str
    usage: Usage
    dollars: float | None
    seconds: float
    turn: int
    doing: str


@dataclass(frozen=True, slots=True)
class ServiceNews:
    """What a person should know of the models' service: that all wait for it, and why; or that it answers again."""

    scope: str
    """The family of models it is about; empty: the whole service."""
    condition: ServiceCondition
    why: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """What is left of one limit of one family of models."""

    family: str
    counted: str
    """`requests`, or tokens of `input` or `output`."""
    limit_a_minute: float
    left: float


@dataclass(frozen=True, slots=True)
class CallGauges:
    """The calls to models of this process: kept in memory, for whoever measures."""

    calls: int = 0
    answers: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    underway: int = 0
    waiting: int = 0
    """Callers whose turn it is not."""
    granted: tuple[Granted, ...] = ()
    shut: Mapping[str, ServiceCondition] = field(default_factory=dict)
    """What all wait for, by family; empty: the whole service."""


class Watcher(Protocol):
    """Whoever measures the process that works on a run."""

    def commanded(self, seconds: float) -> None:
        """A worker's command ended after so long."""
        ...

    async def watch_calls(self, look: Callable[[], CallGauges]) -> None:
        """See how the calls to models are, until this is cancelled."""
        ...


class Meter(Protocol):
    """Where one conversation reports its calls to models, one at a time, and asks whether there is room for another."""

    def may_call(self) -> bool:
        """Whether anything is left at all; for those whose calls nobody can weigh beforehand."""
        ...

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        """Set aside what a call may cost at most. `used` or `release` ends that. A failure where there is no room."""
        ...

    async def used(self, use: ModelUse) -> None: ...

    def release(self, *, lost: bool = False) -> None:
        """There was no answer. `lost`: one was under way, and may have cost all that was set aside."""
        ...

    def waits_for(self, condition: ServiceCondition) -> bool:
        """Whether a call may wait until this is over. A run that was never answered is rather told what is wrong."""
        ...

    def words(self) -> int:
        """How many questions about the whole run a human has answered: one more, and what was shut is tried again."""
        ...

    def may_wait(self) -> bool:
        """Whether a call may wait for its turn. While a run is drained, what can't be made soon isn't made at all."""
        ...

    async def noticed(self, news: ServiceNews) -> None: ...


class Repository(Protocol):
    """Read-only eyes on one commit of the target repository. Everything it returns is untrusted text."""

    async def list_files(self, pattern: str | None = None) -> Sequence[str]: ...

    async def read_file(self, path: str) -> str: ...

    async def search(self, text: str, pattern: str | None = None) -> str: ...

    async def history(self, path: str | None = None, limit: int = 20) -> str: ...


@dataclass(frozen=True, slots=True)
class PlannerBrief:
    """What one planner call is about."""

    run: RunId
    call: int
    epic: str
    state: dict[str, Any]
    """The shared state, as `model-protocol` prints it."""
    workers: dict[str, str] = field(default_factory=dict)
    """The worker kinds there are, each with what it is for."""
    area: Mapping[str, Any] = field(default_factory=dict)
    """What the area is that is planned; nothing where it is the whole epic."""
    model: str | None = None
    """A model other than the planner's own."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What the repository says of itself, by path: untrusted."""


class Planner(Protocol):
    async def plan(
        self,
        brief: PlannerBrief,
        repository: Repository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> Failure | None:
        """Hand in one revision through `submit`, which answers with problems until it holds together."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command in the box did. `output` is both streams in order, capped in its middle."""

    exit_code: int
    output: str
    timed_out: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Extras:
    """What the box of a command shows and allows besides the usual. The operator's choice, never a worker's."""

    read_only: tuple[str, ...] = ()
    """Folders and files of this machine, each at its own path."""
    path: tuple[str, ...] = ()
    """Folders before all others in PATH."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: bool | None = None
    """None: as for everybody."""


NO_EXTRAS = Extras()


class Desk(Protocol):
    """A worker's place: one worktree, and hands that work only inside its box."""

    @property
    def root(self) -> str:
        """The worktree's path as the worker sees it."""
        ...

    async def run(self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS) -> CommandResult: ...

    async def read(self, path: str) -> bytes:
        """Raises `DeskError` with a message for the model."""
        ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def list(self, path: str) -> Sequence[str]:
        """Names below a folder, two levels deep, folders with a slash."""
        ...


class DeskError(Exception):
    """A file the worker asked for can't be had; the message is for the worker."""


@dataclass(frozen=True, slots=True)
class WorkerBrief:
    """All a worker knows. Workers are stateless: subtask, evidence, results of dependencies, nothing else."""

    run: RunId
    subtask: Subtask
    attempt: int
    model: str | None
    guidance: str = ""
    failures: tuple[tuple[int, Failure], ...] = ()
    results: tuple[tuple[SubtaskId, Report], ...] = ()
    layout: str = ""
    """Where which files were when the run began: the same for all its workers."""
    notes: str = ""
    """The repository's AGENTS.md: untrusted."""


class Worker(Protocol):
    @property
    def model(self) -> str | None:
        """The model this kind uses unless the subtask names another; None where it uses none of ours."""
        ...

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> Report | Failure:
        """Do the subtask at this desk. Failing is a value; raising is a bug."""
        ...


# ---- hands ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """A worker's change, committed and pinned."""

    commit: Sha
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a commit of the fleet says of itself."""

    run: RunId
    subtask: SubtaskId
    attempt: int
    title: str
    body: str
    worker: str
    model: str | None
    unfinished: bool = False
    """What a failed attempt left behind: kept, and never taken for finished work."""


Tell = Callable[[CheckRun], None]


def nobody(_: CheckRun) -> None:
    """Nobody waits to be told."""


class Lease(Protocol):
    """A worktree that is ours for a while."""

    @property
    def desk(self) -> Desk: ...

    async def check(
        self, criteria: Iterable[Criterion], tell: Tell = nobody, *, believe_red: bool = False
    ) -> tuple[CheckRun, ...]:
        """Run checks in the box, here, now, each taken when its turn has come and told of when it is over.

        They may share a box. A red answer from one that others used before counts only where red may be believed;
        else it is that of a box of its own.
        """
        ...

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        """Scan what changed, commit it, pin it. Called when nothing runs in the box any more."""
        ...


class Worktrees(Protocol):
    def lease(self, base: Sha, about: Sequence[str] = ()) -> AbstractAsyncContextManager[Lease]:
        """A clean worktree at `base`; given back on the way out. Raises `Broken`.

        Where worktrees may be sparse, what matches the patterns `about` is there; without any, everything is.
        """
        ...

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        """The change an attempt left behind, if it got that far before a crash."""
        ...

    async def diff(self, base: Sha, commit: Sha) -> str: ...

    async def tree(self, commit: Sha) -> Sha:
        """The tree of a commit: what checks are about."""
        ...

    async def restored(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        """A commit like this one, but for some paths that are as on `base`: to be checked, never to land."""
        ...

    def at(self, commit: Sha) -> Repository: ...


@dataclass(frozen=True, slots=True)
class Merged:
    """Candidates put on top of a tip, one commit each. Nothing has moved yet."""

    tip: Sha
    landed: tuple[Member, ...]
    conflicts: tuple[tuple[Member, Failure], ...]


class Integrator(Protocol):
    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged: ...

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        """Move the integration branch, if it still is where we think it is."""
        ...

    async def tip(self, run: RunId) -> Sha: ...

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        """What stands on the integration branch above `old`, oldest first, read from the trailers."""
        ...

    async def publish(self, run: RunId, *, tip: Sha) -> str | None:
        """Move the user's result branch forward to `tip`; a reason where that can't be done."""
        ...


# ---- what a run finds when it goes on --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """The commits of a run that its journal names."""

    run: RunId
    base: Sha
    tip: Sha
    attempts: Mapping[tuple[SubtaskId, int], Sha] = field(default_factory=dict)
    """Finished work."""
    kept: Mapping[tuple[SubtaskId, int], Sha] = field(default_factory=dict)
    """Unfinished work of attempts that failed."""
    landed: tuple[Sha, ...] = ()
    """Commits of the integration branch whose own tree passed: it may stand at each."""
    underway: frozenset[tuple[SubtaskId, int]] = frozenset()
    """Attempts that may have landed without the journal's knowledge."""
    published: Sha | None = None
    written_since: float | None = None
    """The last engine died: what it wrote since then may not have reached the disk. None where it ended well."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What of these commits there is, after everything was restored that could be had."""

    tip: Sha
    """Where the integration branch stands, or what is above it is settled by its trailers."""
    below: frozenset[Sha] = frozenset()
    """What is on the integration branch, where that had to go back."""
    gone: frozenset[Sha] = frozenset()
    shown: bool = True
    """Whether the user's repository has the result branch, as far as it was published."""


# ---- time -----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...
