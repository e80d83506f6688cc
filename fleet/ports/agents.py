"""What the engine needs of the agents, and what an agent gets: a brief, a repository or a workspace, and a meter."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anyio.abc import ByteStream

from fleet.core.base.ids import RunId, SubtaskId
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts.facts import Failure, Report, ServiceCondition
from fleet.core.plans.plan import Effort, Subtask
from fleet.core.plans.revision import Problem, Revision
from fleet.ports.operator import SILENT, Operator


class DrainingError(Exception):
    """The run drains and this would have to wait: it stops, and starts again when the run is resumed."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """One finished call to a model."""

    model: str
    usage: Usage
    dollars: float | None
    seconds: float
    turn: int
    doing: str
    said: str = ""
    """What the model said: its text, or the summary of its thinking. Untrusted."""


@dataclass(frozen=True, slots=True)
class ServiceNotice:
    """News of the models' service for a person: that calls wait for it, and why; or that it answers again."""

    scope: str
    """The family of models concerned; empty: the whole service."""
    condition: ServiceCondition
    why: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class RemainingQuota:
    """What is left of one rate limit of one family of models."""

    family: str
    counted: str
    """`requests`, or `input` or `output` for tokens."""
    limit_a_minute: float
    left: float


@dataclass(frozen=True, slots=True)
class CallGauges:
    """The calls to models of this process, for metrics."""

    calls: int = 0
    answers: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    underway: int = 0
    waiting: int = 0
    """Callers that wait for a permit."""
    granted: tuple[RemainingQuota, ...] = ()
    shut: Mapping[str, ServiceCondition] = field(default_factory=dict)
    """The condition that all calls wait for, by family; empty: the whole service."""


@dataclass(frozen=True, slots=True)
class WaitRules:
    """How the calls of a run may wait for the models' service."""

    waits_for: frozenset[ServiceCondition] = frozenset()
    """Conditions that a call waits out; it fails under all others."""
    draining: bool = False
    """Whether the run drains: then a call that would have to wait is not made."""
    human_answers: int = 0
    """How many questions about the whole run a human has answered: each new answer triggers a probe at once."""


async def _ignore(news: object) -> None:
    del news


@dataclass(frozen=True, slots=True)
class ServiceGate:
    """What a run and the models' service have to know of each other. By default no call waits, and no news is kept."""

    rules: Callable[[], WaitRules] = WaitRules
    report: Callable[[ServiceNotice], Awaitable[None]] = _ignore
    warn: Callable[[str], Awaitable[None]] = _ignore
    """Takes what a person should know about the service; the run goes on."""


class Meter(Protocol):
    """The budget of one conversation, which makes one call at a time."""

    @property
    def service(self) -> ServiceGate: ...

    @property
    def called(self) -> bool:
        """Whether a call was made, or was about to be."""
        ...

    def may_call(self) -> bool:
        """Whether any budget is left: for calls whose cost can't be estimated."""
        ...

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        """Reserve what a call usually costs, until `used` or `release`. A failure if the budget is too small."""
        ...

    async def widen(self, most: Cost) -> float:
        """Extend the reservation as far towards the most that the call may cost as the budget has room for.

        Returns how far: 0 for not at all, 1 for all of it. The caller may not let the call cost more than that.
        """
        ...

    async def used(self, use: ModelUse) -> None: ...

    def release(self, *, lost: bool = False) -> None:
        """Free the reservation of a call without an answer. If it was `lost` under way, it may have cost all of it."""
        ...


class Repository(Protocol):
    """One commit of the target repository, read-only. Everything it returns is untrusted text."""

    async def list_files(self, pattern: str | None = None) -> Sequence[str]: ...

    async def read_file(self, path: str) -> str: ...

    async def search(self, text: str, pattern: str | None = None) -> str: ...

    async def history(self, path: str | None = None, limit: int = 20) -> str: ...


@dataclass(frozen=True, slots=True)
class PlannerBrief:
    """Everything that a planner gets for one call."""

    run: RunId
    call: int
    epic: str
    state: Mapping[str, Any]
    """The planner's view of the run."""
    workers: dict[str, str] = field(default_factory=dict)
    """What each worker is for."""
    area: Mapping[str, Any] = field(default_factory=dict)
    """The area to be planned; empty for the whole epic."""
    model: str | None = None
    """A model other than the planner's own."""
    effort: Effort | None = None
    """An effort other than the planner's own."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """AGENTS.md and the README of the repository, which it may read: the length of each in characters."""
    record: Sequence[Mapping[str, Any]] = ()
    """What was planned and what landed: a later call has the same and more."""
    report: Callable[[SubtaskId], Mapping[str, Any] | None] = field(default=lambda _id: None, compare=False)
    """All that is known of a subtask: its description, its report and its failures. Untrusted."""
    find: Callable[[str], Sequence[Mapping[str, Any]]] = field(default=lambda _words: (), compare=False)
    """The subtasks whose id, title, paths or result hold these words. Untrusted."""


class Planner(Protocol):
    async def plan(
        self,
        brief: PlannerBrief,
        repository: Repository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> Failure | None:
        """Submit one revision. `submit` returns its problems, or none once it is accepted."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command in the box. `output` is both streams in order, without their middle if they are long."""

    exit_code: int
    output: str
    timed_out: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Extras:
    """What the box of a command shows and allows in addition. The operator's choice, never a worker's."""

    read_only: tuple[str, ...] = ()
    """Folders and files of this machine, each at its own path."""
    path: tuple[str, ...] = ()
    """Folders that come first in PATH."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: bool | None = None
    """None: as in every other box."""


NO_EXTRAS = Extras()
Dialogue = Callable[[ByteStream], Awaitable[None]]
"""Speaks with a command while it runs: what it sends is the standard input, what it receives was written to the same
descriptor. The command's input ends when it returns, or sends the end."""


class Workspace(Protocol):
    """A worker's access to its worktree. Everything happens inside its box."""

    @property
    def root(self) -> str:
        """The worktree's path as the worker sees it."""
        ...

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        """Run a shell's script. Without a dialogue it has no input."""
        ...

    async def read(self, path: str) -> bytes:
        """Raises `WorkspaceError`."""
        ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def list(self, path: str) -> Sequence[str]:
        """The names below a folder, two levels deep; folders end in a slash."""
        ...


class WorkspaceError(Exception):
    """A file can't be read or written; the message is for the worker."""


@dataclass(frozen=True, slots=True)
class WorkerBrief:
    """Everything that a worker gets for an attempt. Workers are stateless."""

    run: RunId
    subtask: Subtask
    attempt: int
    model: str | None
    effort: Effort | None = None
    """How hard the model tries; None: as it does by default."""
    guidance: str = ""
    failures: tuple[tuple[int, Failure], ...] = ()
    results: tuple[tuple[SubtaskId, Report], ...] = ()
    layout: str = ""
    """The files of the repository when the run started: the same for all workers."""
    notes: str = ""
    """The repository's AGENTS.md: untrusted."""
    operator: Operator = field(default=SILENT, compare=False, repr=False)
    """What the operator tells this attempt, before it starts and while it works: alive, as a meter is."""


class Worker(Protocol):
    @property
    def model(self) -> str | None:
        """The model it uses unless the attempt names another; None if it calls no model through us."""
        ...

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Do the subtask in this workspace. A failure is a value; an exception is a bug."""
        ...


# ---- calls -----------------------------------------------------------------------------------------------------------
# What an attempt on a node and its manager exchange while it works: calls to models, and words of the operator.
#
# A node holds no key. What it asks for and what it gets are bytes that only both ends of the agents understand;
# whoever carries them sees to it that a call is made once, however often the link between them breaks.


LONGEST_REQUEST = 32 * 1024 * 1024
LONGEST_ANSWER = 64 * 1024 * 1024
MOST_CALLS = 8
"""Calls of one attempt at a time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The attempt asks for a call. Repeated to whoever follows it, until it has the answer."""

    number: int
    request: bytes = field(repr=False)
    transcript: bytes = field(default=b"", repr=False)
    """What was added to its transcript since the call before."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The attempt has the whole answer to a call, or does not want it any more."""

    number: int


@dataclass(frozen=True, slots=True)
class InstructionsRead:
    """The next request of the attempt holds so many of the operator's instructions."""

    count: int


Sign = Asked | Dropped | InstructionsRead


class CallRefusedError(Exception):
    """A call that the order does not allow: an honest node never asks for it. The message says what is wrong."""


class Reply(Protocol):
    """Where the answer to one call goes."""

    @property
    def is_dropped(self) -> bool:
        """Whether the attempt does not want it any more."""
        ...

    async def send(self, part: bytes) -> None: ...


class AttemptCalls(Protocol):
    """The manager's end: the calls of one attempt that is made on a node. What the node sends is untrusted."""

    @property
    def drained(self) -> bool:
        """Whether a call was not made because the run is draining and it would have had to wait."""
        ...

    async def answer(self, request: bytes, reply: Reply) -> None:
        """Make a call and pass its answer on. Raises `CallRefusedError`."""
        ...

    def keep(self, transcript: bytes) -> None:
        """Add to the transcript of the attempt."""
        ...

    def close(self) -> None:
        """Interrupt the call under way: the attempt is over. What it has used is charged."""
        ...
