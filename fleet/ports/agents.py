"""The engine's interface to agents, and an agent's input: a brief, a repository or a workspace, and a meter."""

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
    """Raised instead of waiting while the run drains. The work starts again when the run is resumed."""


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
    """The model's text, or the summary of its thinking. Untrusted."""


@dataclass(frozen=True, slots=True)
class ServiceNotice:
    """A notice about the model service: calls are waiting for it, with the reason, or it responds again."""

    scope: str
    """The affected family of models, or empty for the full service."""
    condition: ServiceCondition
    why: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class RemainingQuota:
    """The remaining quota of a rate limit, for a family of models."""

    family: str
    counted: str
    """`requests`, or `input` or `output` for tokens."""
    limit_a_minute: float
    left: float


@dataclass(frozen=True, slots=True)
class CallGauges:
    """The model calls of this process, for metrics."""

    calls: int = 0
    answers: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    """By kind."""
    underway: int = 0
    waiting: int = 0
    """Callers waiting for a permit."""
    granted: tuple[RemainingQuota, ...] = ()
    shut: Mapping[str, ServiceCondition] = field(default_factory=dict)
    """The condition that calls wait for, by family. The empty family is the full service."""


@dataclass(frozen=True, slots=True)
class WaitRules:
    """The rules for calls of a run that wait for the model service."""

    waits_for: frozenset[ServiceCondition] = frozenset()
    """Conditions that a call waits for. It fails under all others."""
    draining: bool = False
    """Whether the run drains. Calls that would have to wait are then not made."""
    human_answers: int = 0
    """The number of answered questions about the run. Each new answer triggers an immediate probe."""


async def _ignore(news: object) -> None:
    del news


@dataclass(frozen=True, slots=True)
class ServiceGate:
    """Connects a run with the model service. By default, calls do not wait and notices are ignored."""

    rules: Callable[[], WaitRules] = WaitRules
    report: Callable[[ServiceNotice], Awaitable[None]] = _ignore
    warn: Callable[[str], Awaitable[None]] = _ignore
    """Records a warning about the service. The run continues."""


class Meter(Protocol):
    """The budget of one conversation, which makes one call at a time."""

    @property
    def service(self) -> ServiceGate: ...

    @property
    def called(self) -> bool:
        """Whether a call was made or reserved."""
        ...

    def may_call(self) -> bool:
        """Whether any budget is left, for calls with unknown cost."""
        ...

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        """Reserve the usual cost of a call, until `used` or `release`. Returns a failure if the budget is too small."""
        ...

    async def widen(self, most: Cost) -> float:
        """Extend the reservation towards the maximum cost of the call, as far as the budget allows.

        Returns the share of the extension, from 0 to 1. The caller must not exceed the reservation.
        """
        ...

    async def used(self, use: ModelUse) -> None: ...

    def release(self, *, lost: bool = False) -> None:
        """Free the reservation of a call without an answer. A `lost` call may have cost all of it."""
        ...


class PlannerRepository(Protocol):
    """One commit of the target repository, read-only. Everything it returns is untrusted text."""

    async def list_files(self, pattern: str | None = None) -> Sequence[str]: ...

    async def read_file(self, path: str) -> str: ...

    async def search(self, text: str, pattern: str | None = None) -> str: ...

    async def history(self, path: str | None = None, limit: int = 20) -> str: ...


@dataclass(frozen=True, slots=True)
class PlannerBrief:
    """The input of a planner for one call."""

    run: RunId
    call: int
    epic: str
    state: Mapping[str, Any]
    """The planner's view of the run."""
    workers: dict[str, str] = field(default_factory=dict)
    """The description of each worker."""
    area: Mapping[str, Any] = field(default_factory=dict)
    """The area to plan, or empty for the full epic."""
    model: str | None = None
    """A model other than the planner's own."""
    effort: Effort | None = None
    """An effort other than the planner's own."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """The lengths of the repository's AGENTS.md and README in characters. The planner may read them."""
    record: Sequence[Mapping[str, Any]] = ()
    """The record of plans and landings, which grows with each call."""
    report: Callable[[SubtaskId], Mapping[str, Any] | None] = field(default=lambda _id: None, compare=False)
    """Returns the description, the report and the failures of a subtask. Untrusted."""
    find: Callable[[str], Sequence[Mapping[str, Any]]] = field(default=lambda _words: (), compare=False)
    """Finds subtasks with these words in their id, title, paths or result. Untrusted."""


class Planner(Protocol):
    async def plan(
        self,
        brief: PlannerBrief,
        repository: PlannerRepository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> Failure | None:
        """Submit one revision. `submit` returns its problems, or an empty sequence if it is accepted."""
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command in the sandbox. `output` is both streams in order, cut in the middle if too long."""

    exit_code: int
    output: str
    timed_out: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Extras:
    """Additional access for a command in the sandbox. Set by the operator, never by a worker."""

    read_only: tuple[str, ...] = ()
    """Folders and files of this machine, each at its own path."""
    path: tuple[str, ...] = ()
    """Folders before PATH."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: bool | None = None
    """None for the default."""


NO_EXTRAS = Extras()
Dialogue = Callable[[ByteStream], Awaitable[None]]
"""Communicates with a running command: it sends the command's input and receives data written to the same descriptor.
The input ends when it returns or sends the end."""


class Workspace(Protocol):
    """A worker's access to its worktree. Every operation runs in the sandbox."""

    @property
    def root(self) -> str:
        """The path of the worktree in the sandbox."""
        ...

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        """Run a shell script. Without a dialogue, its input is empty."""
        ...

    async def read(self, path: str) -> bytes:
        """Raises `WorkspaceError`."""
        ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def list(self, path: str) -> Sequence[str]:
        """The names below a folder, two levels deep. Folders end in a slash."""
        ...


class WorkspaceError(Exception):
    """A file can't be read or written. The message is for the worker."""


@dataclass(frozen=True, slots=True)
class WorkerBrief:
    """The input of a worker for an attempt. Workers are stateless."""

    run: RunId
    subtask: Subtask
    attempt: int
    model: str | None
    effort: Effort | None = None
    """The effort of the model, or None for its default."""
    guidance: str = ""
    failures: tuple[tuple[int, Failure], ...] = ()
    results: tuple[tuple[SubtaskId, Report], ...] = ()
    layout: str = ""
    """The files of the repository at the start of the run, the same for all workers."""
    notes: str = ""
    """The repository's AGENTS.md. Untrusted."""
    operator: Operator = field(default=SILENT, compare=False, repr=False)
    """The operator's instructions to this attempt, including new ones while it runs."""


class Worker(Protocol):
    @property
    def model(self) -> str | None:
        """The default model; None if it does not call models through fleet."""
        ...

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Do the subtask in this workspace. A failure is a value, an exception is a bug."""
        ...


# ---- calls -----------------------------------------------------------------------------------------------------------
# The messages between an attempt on a node and its manager: model calls and instructions from the operator.
#
# Nodes do not have keys. Requests and answers are bytes that only the agents on both ends interpret. The transport
# makes each call exactly once, even if the link breaks.


LONGEST_REQUEST = 32 * 1024 * 1024
LONGEST_ANSWER = 64 * 1024 * 1024
MOST_CALLS = 8
"""The maximum number of calls of an attempt at the same time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The attempt requests a call. Repeated after a reconnect, until it has the answer."""

    number: int
    request: bytes = field(repr=False)
    transcript: bytes = field(default=b"", repr=False)
    """The additions to its transcript since the previous call."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The attempt has the full answer to a call, or no longer needs it."""

    number: int


@dataclass(frozen=True, slots=True)
class InstructionsRead:
    """The number of the operator's instructions in the next request of the attempt."""

    count: int


Sign = Asked | Dropped | InstructionsRead


class CallRefusedError(Exception):
    """A call that the order does not allow. A correct node never requests it."""


class Reply(Protocol):
    """The recipient of the answer to a call."""

    @property
    def is_dropped(self) -> bool:
        """Whether the attempt no longer needs the answer."""
        ...

    async def send(self, part: bytes) -> None: ...


class AttemptCalls(Protocol):
    """The manager's side of the calls of an attempt on a node. Data from the node is untrusted."""

    @property
    def drained(self) -> bool:
        """Whether a call was not made because it had to wait while the run was draining."""
        ...

    async def answer(self, request: bytes, reply: Reply) -> None:
        """Make a call and forward its answer. Raises `CallRefusedError`."""
        ...

    def keep(self, transcript: bytes) -> None:
        """Add to the transcript of the attempt."""
        ...

    def close(self) -> None:
        """Interrupt the running call at the end of the attempt. Its usage is charged."""
        ...
