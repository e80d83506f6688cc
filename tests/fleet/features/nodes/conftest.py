"""A node whose work is scripted, reached in process, over a stream, by a command or through Ray.

Each keeps the same promises. The command is a program behind pipes, or the OpenSSH client where `--ssh` names it.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import SHUT_RDWR, socketpair
from tempfile import TemporaryDirectory
from typing import IO

import pytest
from anyio import Event, create_task_group, create_unix_listener
from anyio.abc import SocketAttribute, SocketStream

from fleet.core.base.ids import RunId, Sha
from fleet.core.facts.facts import CheckRun, Failure, Report
from fleet.features.nodes.call_proxy import CallChannel
from fleet.features.nodes.cluster.cluster import connected_socket
from fleet.features.nodes.cluster.cluster_events import SOCKET, ClusterHost, ClusterHosts, load_cluster_event
from fleet.features.nodes.connection import NodeConnection, greet
from fleet.features.nodes.host import OrderHost, Records
from fleet.features.nodes.messages import Greeting, Open
from fleet.features.nodes.node_orders import NodeHost
from fleet.features.nodes.reports import Spool
from fleet.features.nodes.serve import serve
from fleet.features.nodes.transport import ByteStream, FdStream, Link, open_command
from fleet.ports.agents import WorkerBrief
from fleet.ports.orders import AttemptOrder, AttemptResult, ChecksOrder, Tell, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import Change, EffectError
from tests.fleet.core.pretend import subtask

SHA = Sha("0123456789abcdef0123456789abcdef01234567")
MADE = Sha("f" * 40)
PROGRAM = Path(__file__).with_name("relay_program.py")
STANDIN = Path(__file__).parent / "standin"
LEASE_S = 60.0
GREETING = Greeting(protocol=3, version="1", host="h", processors=2, memory_bytes=1, time=1.0)
OPEN = Open(protocol=3, version="1", run="r", repository="repo-1", object_format="sha1", base=SHA, lease_s=LEASE_S)


def attempt(id_: str = "a", number: int = 1) -> AttemptOrder:
    return AttemptOrder(SHA, "step", WorkerBrief(run=RunId("r"), subtask=subtask(id_), attempt=number, model=None))


@dataclass
class ScriptedNode:
    """Satisfies `Workshop`. A subtask called `slow` waits for the gate, `broken` raises, `asks` calls a model."""

    ran: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    lines: list[CallChannel] = field(default_factory=list)
    gate: Event = field(default_factory=Event)
    error: EffectError | None = None
    failure: Failure = field(default_factory=lambda: Failure(kind="infrastructure", summary="no room"))
    """Of what is broken."""

    async def attempt(self, order: AttemptOrder, line: CallChannel, tell: Tell) -> AttemptResult:
        id_ = order.brief.subtask.id
        self.ran.append(id_)
        await tell(WorktreeReady())
        if id_ == "broken":
            raise self.error or EffectError(self.failure)
        if id_ == "slow":
            try:
                await self.gate.wait()
            finally:
                if not self.gate.is_set():
                    self.stopped.append(id_)
        self.lines.append(line)
        if id_ == "asks":
            async with line.call(b"a request") as parts:
                assert b"".join([part async for part in parts]) == b"an answer"
        await tell(WorkerFinished())
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
    records: Records = field(default_factory=Records)

    async def commits(self) -> Sequence[Sha]:
        return [SHA]

    async def store(self, commit: Sha, pack: IO[bytes]) -> None:
        pack.seek(0)
        self.stored.append((commit, pack.read()))

    async def pack(self, commit: Sha, base: Sha) -> bytes:
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
        yield OrderHost(site.node, site.pack, site.transcript, site.spool, tasks, site.records)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def connected(site: ScriptedSite, opening: Open = OPEN, *, running: bool = True) -> AsyncIterator[NodeConnection]:
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ray", help="the address of a real cluster, for the place of Ray's stand-in")


@asynccontextmanager
async def serving(site: ScriptedSite, path: Path) -> AsyncIterator[None]:
    """The host behind a socket, which no other test uses now: a program that passes bytes on makes it a node."""

    @asynccontextmanager
    async def open_site(opening: Open, terms: bytes) -> AsyncIterator[ScriptedSite]:
        del opening, terms
        yield site

    async def serve_client(client: SocketStream) -> None:
        async with client:
            fd = client.extra(SocketAttribute.raw_socket).fileno()  # noqa: S610 - no Django here
            await serve(Link(FdStream(fd, fd)), GREETING, open_site)

    async with await create_unix_listener(path) as listener, create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve_client)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def greeted(stream: ByteStream) -> AsyncIterator[NodeConnection]:
    connection = await greet(Link(stream), OPEN, b"{}", within_s=30)
    async with create_task_group() as tasks:
        tasks.start_soon(connection.run)
        yield connection
        tasks.cancel_scope.cancel()


def relayed(path: Path) -> list[str]:
    """The command line that gives the stream behind a socket."""
    return [sys.executable, "-I", "-S", str(PROGRAM), str(path)]


@dataclass(frozen=True)
class Command:
    """A transport as runs have it: a command line."""

    ssh: str
    folder: Path

    @asynccontextmanager
    async def reach(self, site: ScriptedSite) -> AsyncIterator[NodeHost]:
        path = self.folder / "node"
        node = relayed(path)
        argv = [*shlex.split(self.ssh), shlex.join(node)] if self.ssh else node
        env = {"PATH": os.environ["PATH"]}
        async with serving(site, path), open_command(argv, env) as stream, greeted(stream) as connection:
            yield connection


@dataclass(frozen=True)
class RayBridge:
    """The program that speaks to Ray. What its machines start is joined to a socket of the test."""

    folder: Path
    host: ClusterHost

    @asynccontextmanager
    async def reach(self, site: ScriptedSite) -> AsyncIterator[NodeHost]:
        async with serving(site, self.folder / "node"):
            with connected_socket(self.folder / SOCKET) as stream:
                await stream.send(self.host.id.encode() + b"\n")
                async with greeted(stream) as connection:
                    yield connection


@pytest.fixture(scope="session")
def ray_bridge(request: pytest.FixtureRequest) -> Iterator[RayBridge]:
    """With Ray's stand-in, or with the cluster that `make ray` names."""
    address: str | None = request.config.getoption("--ray", default=None)
    with TemporaryDirectory(prefix="fleet-ray-") as name:
        folder = Path(name)
        (folder / "hosts").write_text("a" * 56)
        env = {"PATH": os.environ["PATH"], "HOME": name, "RAY_STANDIN": name}
        if address is None:
            env["PYTHONPATH"] = str(STANDIN)
        else:
            env.update((name, value) for name, value in os.environ.items() if name.startswith("RAY_"))
        bridge = [sys.executable, "-P", "-m", "fleet.features.nodes.cluster.bridge", "--", name, address or "auto"]
        argv = [*bridge, *relayed(folder / "node")]
        with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            news = load_cluster_event(process.stdout.readline())
            assert isinstance(news, ClusterHosts), news
            yield RayBridge(folder, news.hosts[0])
            process.stdin.close()
            assert process.wait(30) == 0


Reach = Callable[[ScriptedSite], AbstractAsyncContextManager[NodeHost]]


@pytest.fixture(params=["in process", "over a stream", "by a command", "through Ray"])
def reach(request: pytest.FixtureRequest, tmp_path: Path) -> Reach:
    if request.param == "by a command":
        return Command(request.config.getoption("--ssh"), tmp_path).reach
    if request.param == "through Ray":
        bridge: RayBridge = request.getfixturevalue("ray_bridge")
        return bridge.reach
    return in_process if request.param == "in process" else connected
