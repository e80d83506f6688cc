"""A node whose work is scripted, reached in process or over a stream: both have to keep the same promises."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import SHUT_RDWR, socketpair

import pytest
from anyio import Event, create_task_group

from fleet.core.state.facts import CheckRun, Failure, Report
from fleet.nodes.calling.line import Line
from fleet.nodes.connection import Connection, greet
from fleet.nodes.host import OrderHost
from fleet.nodes.messages import Greeting, Open
from fleet.nodes.serve import serve
from fleet.nodes.spool import Spool
from fleet.nodes.stdio import FdStream
from fleet.nodes.streams import Link
from fleet.ports.agents import WorkerBrief
from fleet.ports.nodes import (
    AttemptOrder,
    AttemptResult,
    Began,
    ChecksOrder,
    NodeHost,
    Tell,
    Worked,
)
from fleet.ports.worktrees import Change, EffectError
from tests.fleet.core.pretend import subtask

SHA = "0123456789abcdef0123456789abcdef01234567"
MADE = "f" * 40
LEASE_S = 60.0
GREETING = Greeting(protocol=2, version="1", host="h", processors=2, memory_bytes=1, time=1.0)
OPEN = Open(protocol=2, version="1", run="r", repository="repo-1", object_format="sha1", base=SHA, lease_s=LEASE_S)


def attempt(id_: str = "a", number: int = 1) -> AttemptOrder:
    return AttemptOrder(SHA, "step", WorkerBrief(run="r", subtask=subtask(id_), attempt=number, model=None))


@dataclass
class ScriptedNode:
    """Satisfies `Workshop`. A subtask called `slow` waits for the gate, `broken` raises, `asks` calls a model."""

    ran: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    gate: Event = field(default_factory=Event)
    failure: Failure = field(default_factory=lambda: Failure(kind="infrastructure", summary="no room"))
    """Of what is broken."""

    async def attempt(self, order: AttemptOrder, line: Line, tell: Tell) -> AttemptResult:
        id_ = order.brief.subtask.id
        self.ran.append(id_)
        await tell(Began())
        if id_ == "broken":
            raise EffectError(self.failure)
        if id_ == "slow":
            try:
                await self.gate.wait()
            finally:
                if not self.gate.is_set():
                    self.stopped.append(id_)
        if id_ == "asks":
            async with line.call(b"a request") as parts:
                assert b"".join([part async for part in parts]) == b"an answer"
        await tell(Worked())
        return AttemptResult(Report(status="done", summary="did it"), Change(MADE, ("a.txt",)))

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        self.ran.append(order.commit)
        return tuple(CheckRun(criterion=each.criterion, command=each.run or "", passed=True) for each in order.criteria)


@dataclass
class ScriptedSite:
    """Satisfies `Site`."""

    node: ScriptedNode
    spool: Spool
    lacks: Sequence[str] = ()
    stored: list[tuple[str, bytes]] = field(default_factory=list)
    cut: Callable[[], None] = lambda: None
    """Ends its connection."""

    async def commits(self) -> Sequence[str]:
        return [SHA]

    async def store(self, commit: str, pack: bytes) -> None:
        self.stored.append((commit, pack))

    async def pack(self, commit: str, base: str) -> bytes:
        return f"{commit[:4]} on {base[:4]}".encode()

    def transcript(self, order: AttemptOrder, since: int) -> bytes:
        return order.brief.subtask.id.encode()[since:]


@dataclass(frozen=True)
class Wire:
    """A stream between both ends of the protocol: `manager` and `node` each hold one."""

    manager: FdStream
    node: FdStream
    cut: Callable[[], None]
    """Ends the stream, as a link that breaks does."""


@contextmanager
def wire() -> Iterator[Wire]:
    ours, theirs = socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        manager, node = (FdStream(each.fileno(), each.fileno()) for each in (ours, theirs))
        yield Wire(manager, node, cut=lambda: ours.shutdown(SHUT_RDWR))


@pytest.fixture
def site(tmp_path: Path) -> ScriptedSite:
    spool = Spool(tmp_path / "spool")
    spool.make()
    return ScriptedSite(ScriptedNode(), spool)


@asynccontextmanager
async def in_process(site: ScriptedSite) -> AsyncIterator[NodeHost]:
    async with create_task_group() as tasks:
        yield OrderHost(site.node, site.pack, site.transcript, site.spool, tasks)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def connected(site: ScriptedSite, opening: Open = OPEN, *, running: bool = True) -> AsyncIterator[Connection]:
    """The same host at the other end of a stream. Whoever is to run the connection says so."""

    @asynccontextmanager
    async def open_site(opening: Open, terms: bytes) -> AsyncIterator[ScriptedSite]:
        del opening, terms
        yield site

    with wire() as ends:
        async with create_task_group() as tasks:
            tasks.start_soon(serve, Link(ends.node), GREETING, open_site)
            connection = await greet(Link(ends.manager), opening, b"{}", within_s=10)
            if running:
                tasks.start_soon(connection.run)
            site.cut = ends.cut
            yield connection
            tasks.cancel_scope.cancel()


Reach = Callable[[ScriptedSite], AbstractAsyncContextManager[NodeHost]]


@pytest.fixture(params=[in_process, connected], ids=["in process", "over a stream"])
def reach(request: pytest.FixtureRequest) -> Reach:
    found: Reach = request.param
    return found
