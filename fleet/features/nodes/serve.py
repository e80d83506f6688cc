"""The node's end of the protocol: one connection serves one run.

All input is checked first. When the stream ends, running orders may continue until their lease expires, so that a
restarted manager finds them done. After that, everything is stopped.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol, assert_never

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    connect_unix,
    create_task_group,
    create_unix_listener,
    current_time,
    move_on_after,
    sleep,
    sleep_until,
    to_thread,
)
from anyio import Event as Flag
from anyio.abc import SocketListener, TaskGroup, UNIXSocketStream

from fleet.core.base.ids import Sha
from fleet.errors import FleetError
from fleet.features.nodes.host import OrderHost, Records, Workshop
from fleet.features.nodes.messages import (
    MOST_NAMED,
    Acknowledge,
    Cancel,
    Clean,
    CleanupDone,
    Decoder,
    DropAttempt,
    Follow,
    Frame,
    FrameError,
    FromManager,
    Greeting,
    Heartbeat,
    Inspect,
    Inspected,
    Instruct,
    ModelAnswer,
    ModelCall,
    NodeEvent,
    NodeMessage,
    ObjectPack,
    Open,
    OrderOpened,
    OrderRefused,
    Read,
    Start,
    Stored,
    Unknown,
    dump_event,
    encode,
    from_manager,
    load_instruction,
    load_order,
)
from fleet.features.nodes.node_orders import OrderEvent, UnknownOrderError
from fleet.features.nodes.reports import Spool
from fleet.features.nodes.transport import FdStream, Link, LinkLostError
from fleet.ports.agents import Asked, Dropped, InstructionsRead
from fleet.ports.orders import AttemptOrder
from fleet.ports.worktrees import EffectError

# ---- handover --------------------------------------------------------------------------------------------------------
# Hands a new stream over to an earlier process of this node that works for the same run.
#
# Each connection starts a separate process. When a link breaks, its process continues its orders. The process of the
# next link passes its file descriptors to it and waits. That way, the manager can follow the orders again and answer
# their calls, without a daemon. Only processes of the same user on the same machine can reach the socket.


SOCKET = "process.sock"
ANSWER_S = 2.0  # timeout for the earlier process; if it hangs, it does not get the stream
OFFER, YES, GO = b"o", b"y", b"g"
_GONE = (OSError, BrokenResourceError, ClosedResourceError, EndOfStream)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A stream received from another process, which waits until it is released."""

    link: Link
    released: Flag = field(default_factory=Flag)


async def hand_over(folder: Path, opening: Frame, stream: FdStream) -> bool:
    """Hand a stream over to the process that works for the run, and return once that process has released it.

    Returns False if there is no such process, or if it rejects the stream because its terms differ or it hangs.
    """
    with _short(folder) as path:
        try:
            socket = await connect_unix(path)
        except OSError:
            return False
    async with socket:
        taken = False
        with suppress(*_GONE), move_on_after(ANSWER_S):
            await socket.send_fds(OFFER, [stream.source, stream.sink])
            await socket.send(encode(opening))
            taken = await socket.receive(1) == YES
        if not taken:
            return False
        with suppress(*_GONE):  # from here on, the other process owns the stream
            await socket.send(GO)
            await socket.receive(1)
    return True


@asynccontextmanager
async def taking_over(
    folder: Path, tasks: TaskGroup, accepts: Callable[[Frame], bool], take: Callable[[Arrived], None]
) -> AsyncIterator[None]:
    """Accept streams from later processes during the block."""
    with _short(folder) as path:
        listener = await create_unix_listener(path, mode=0o600)
    own = (folder / SOCKET).stat().st_ino

    async def heed(socket: UNIXSocketStream) -> None:
        async with socket:
            with suppress(*_GONE, FrameError):
                await _serve_requests(socket, accepts, take)

    tasks.start_soon(_serve, listener, heed, tasks)
    try:
        yield
    finally:
        with suppress(OSError):
            if (folder / SOCKET).stat().st_ino == own:  # a later process may have replaced it
                (folder / SOCKET).unlink()


async def _serve(
    listener: SocketListener, heed: Callable[[UNIXSocketStream], Awaitable[None]], tasks: TaskGroup
) -> None:
    async with listener:
        await listener.serve(heed, tasks)  # type: ignore[arg-type] # a listener of UNIX sockets


async def _serve_requests(
    socket: UNIXSocketStream, accepts: Callable[[Frame], bool], take: Callable[[Arrived], None]
) -> None:
    fds: list[int] = []
    try:
        agreed = False
        with move_on_after(2 * ANSWER_S):
            _, fds = await socket.receive_fds(len(OFFER), 2)
            decoder, frame = Decoder(), None
            while frame is None:
                frame = next(decoder.feed(await socket.receive()), None)
            if len(fds) == 2 and accepts(frame):  # noqa: PLR2004 - a source and a sink
                await socket.send(YES)
                agreed = await socket.receive(1) == GO
        if agreed:
            for fd in fds:
                os.set_blocking(fd, False)
                os.set_inheritable(fd, False)
            arrived = Arrived(Link(FdStream(*fds)))
            take(arrived)
            await arrived.released.wait()
    finally:
        for fd in fds:
            os.close(fd)


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a short path of the socket through the folder's descriptor: the kernel's limit is 107 characters."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


# ---- serve -----------------------------------------------------------------------------------------------------------


MOST_BYTES = 16 * 1024**3  # per pack of objects
MOST_FOLLOWED = 4_000
"""The maximum of concurrent followers."""


class WorkSite(Protocol):
    """The resources of a node for one run."""

    @property
    def node(self) -> Workshop: ...

    @property
    def spool(self) -> Spool: ...

    @property
    def records(self) -> Records: ...

    @property
    def lacks(self) -> Sequence[str]:
        """The workers whose program is not installed on this node."""
        ...

    async def commits(self) -> Sequence[Sha]:
        """Return the commits on this node."""
        ...

    async def store(self, commit: Sha, pack: IO[bytes]) -> None:
        """Store objects of the manager from a file. Raises `EffectError`."""
        ...

    async def pack(self, commit: Sha, base: Sha) -> bytes: ...

    def transcript(self, order: AttemptOrder, since: int) -> bytes:
        """Read the transcript of an attempt from an offset."""
        ...


OpenSite = Callable[[Open, bytes], AbstractAsyncContextManager[WorkSite]]
"""Opens a site for a run under the terms of its manager. Raises `FleetError`."""


class Caches(Protocol):
    """The caches of a node for all runs."""

    async def inspect(self) -> Inspected: ...

    async def clean(self, repository: str) -> CleanupDone: ...


FolderOf = Callable[[Open], Path]
"""Returns the folder of a run on this node, which its processes use to find each other."""


async def serve(
    link: Link,
    greeting: Greeting,
    open_site: OpenSite,
    caches: Caches | None = None,
    *,
    folder_of: FolderOf | None = None,
) -> None:
    """Serve one manager until it is gone and its orders are done, or until their lease has expired.

    With a folder, hand the stream over to an earlier process of the run, or accept the streams of later processes.
    """
    frames = link.frames()
    try:
        await link.send(greeting)
        first = await anext(frames, None)
        if first is None:
            return
        if caches is not None and isinstance(from_manager(first), Inspect | Clean | Heartbeat):
            await _look_after(link, caches, first, frames)
            return
        opening = _opening(first, greeting)
        folder = folder_of(opening) if folder_of is not None else None
        if folder is not None and isinstance(link.stream, FdStream) and await hand_over(folder, first, link.stream):
            return
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(open_site(opening, first.parts[0]))
            tasks = await stack.enter_async_context(create_task_group())
            host = OrderHost(site.node, site.pack, site.transcript, site.spool, tasks, site.records)
            session = _Session(link, host, site, lease_s=opening.lease_s)
            tasks.start_soon(session.watch_lease)
            if folder is not None:
                await stack.enter_async_context(taking_over(folder, tasks, _same_as(first), session.arrive))
            broken = await session.run(frames)
            tasks.cancel_scope.cancel()
        if broken is not None:
            raise broken
    except LinkLostError:
        return
    except (FleetError, FrameError, EffectError) as error:
        with suppress(LinkLostError):
            await link.send(OrderRefused(why=str(error)[:2_000]))


async def _look_after(link: Link, caches: Caches, first: Frame, frames: AsyncIterator[Frame]) -> None:
    """Answer requests about the node itself until the stream ends."""
    frame: Frame | None = first
    while frame is not None:
        match from_manager(frame):
            case Heartbeat() as beat:
                await link.send(beat)
            case Inspect():
                await link.send(await caches.inspect())
            case Clean(repository=repository):
                await link.send(await caches.clean(repository))
            case other:
                raise FrameError(f"`{other.type}` without an open connection")
        frame = await anext(frames, None)


def _same_as(first: Frame) -> Callable[[Frame], bool]:
    """Return a predicate for openings of the same run under the same terms."""
    return lambda later: (later.header, later.parts) == (first.header, first.parts)


def _opening(first: Frame, greeting: Greeting) -> Open:
    """Parse the first message. Raises `FrameError`, or `FleetError` if the versions differ."""
    opening = from_manager(first)
    if not isinstance(opening, Open):
        raise FrameError("the first message must be `open`")
    if (opening.protocol, opening.version) != (greeting.protocol, greeting.version):
        raise FleetError(
            f"the manager runs fleet {opening.version} (protocol {opening.protocol}), "
            f"but this node runs fleet {greeting.version} (protocol {greeting.protocol})",
            hint="install the same version on both",
        )
    return opening


@dataclass(slots=True)
class _Session:
    """The session of one process with a manager, across connections."""

    link: Link
    host: OrderHost
    site: WorkSite
    lease_s: float
    ends: float = 0.0
    """When the lease expires, unless the manager sends a heartbeat first."""
    reading: CancelScope = field(default_factory=CancelScope)
    """Covers reading from the manager."""
    _follows: TaskGroup | None = None
    """The tasks that follow orders over the connection."""
    _next: Arrived | None = None
    """The connection that replaces this one."""
    _arrived: Flag = field(default_factory=Flag)
    _released: Flag = field(default_factory=Flag)
    """Set when this connection is no longer needed."""
    _answered: float = 0.0
    """When the last heartbeat was answered."""
    _followed: int = 0
    _incoming: "IO[bytes] | None" = None

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Restart the lease."""
        self._answered = current_time()
        self.ends = self._answered + self.lease_s

    def arrive(self, arrived: Arrived) -> None:
        """Switch to a newer connection of the manager, even if the current one has not ended."""
        if self._next is not None:
            self._next.released.set()
        self._next = arrived
        self.reading.cancel()
        self._arrived.set()

    async def run(self, frames: AsyncIterator[Frame]) -> FrameError | None:
        """Serve the manager across connections, until it does not reconnect and all orders are done."""
        while True:
            broken = await self._serve(frames)
            self._released.set()
            if broken is not None:
                return broken
            with move_on_after(max(self.ends - current_time(), 0)):
                await self._wait_arrived_or_idle()
            if self._next is None:
                return None
            arrived, self._next, self._arrived = self._next, None, Flag()
            self.link, self._released = arrived.link, arrived.released
            self.reading, self._incoming = CancelScope(), None
            self._begin()
            frames = self.link.frames()

    async def _serve(self, frames: AsyncIterator[Frame]) -> FrameError | None:
        commits, orders = await self.site.commits(), await to_thread.run_sync(self.site.spool.keys)
        opened = OrderOpened(
            commits=tuple(commits)[:MOST_NAMED],
            orders=tuple(orders)[:MOST_NAMED],
            lacks=tuple(self.site.lacks)[:MOST_NAMED],
        )
        async with create_task_group() as self._follows:
            await self._send(opened)
            broken = await self.read(frames)
            self._follows.cancel_scope.cancel()
        self._followed = 0
        return broken

    async def _wait_arrived_or_idle(self) -> None:
        async with create_task_group() as waiting:

            async def until(wait: Callable[[], Awaitable[None]]) -> None:
                await wait()
                waiting.cancel_scope.cancel()

            waiting.start_soon(until, self.host.wait_idle)
            waiting.start_soon(until, self._arrived.wait)

    async def watch_lease(self) -> None:
        """Stop all orders when the lease expires, and drop a dead stream after another lease."""
        while True:
            ends = self.ends
            await sleep_until(ends)
            if self.ends == ends:
                self.host.fence()
                await sleep(self.lease_s)
                if self.ends == ends:
                    self.reading.cancel()

    async def read(self, frames: AsyncIterator[Frame]) -> FrameError | None:
        """Process the manager's messages until it is gone. Returns an error if it violates the protocol."""
        try:
            with self.reading:
                async for frame in frames:
                    await self.obey(from_manager(frame), frame.parts)
        except LinkLostError:
            pass
        except FrameError as error:
            return error
        return None

    async def obey(self, message: FromManager, parts: Sequence[bytes]) -> None:
        match message:
            case Heartbeat():
                # The manager sent this heartbeat after our last answer, so the lease counts from then on our clock.
                self.ends, self._answered = self._answered + self.lease_s, current_time()
                await self._send(message)
            case Start(key=key):
                await self.host.start(key, load_order(parts[0]))
            case Follow(key=key, since=since):
                self._followed += 1
                if self._followed > MOST_FOLLOWED:
                    raise FrameError(f"more than {MOST_FOLLOWED} orders followed at the same time")
                self._follow_soon(key, since)
            case ModelAnswer(key=key, number=number, at=at, last=last):
                await self.host.answer(key, number, at, parts[0], last=last)
            case Instruct(key=key, number=number):
                await self.host.instruct(key, number, load_instruction(parts[0]))
            case Cancel(key=key):
                await self.host.cancel(key)
            case Acknowledge(key=key):
                await self.host.acknowledge(key)
            case ObjectPack(commit=commit, last=last):
                await self._take_objects(commit, parts[0], last=last)
            case Open() | Inspect() | Clean():
                raise FrameError(f"unexpected `{message.type}` message in an open connection")
            case _:
                assert_never(message)

    def _follow_soon(self, key: str, since: int) -> None:
        if self._follows is not None:
            self._follows.start_soon(self._follow, key, since)

    async def _follow(self, key: str, since: int) -> None:
        number = since
        try:
            async for event in self.host.follow(key, since):
                with suppress(LinkLostError):  # the manager follows it again later
                    await self.link.send(*_news(key, number, event))
                number += not isinstance(event, Asked | Dropped | InstructionsRead)
        except UnknownOrderError:
            await self._send(Unknown(key=key))
        finally:
            self._followed -= 1

    async def _take_objects(self, commit: Sha, part: bytes, *, last: bool) -> None:
        if self._incoming is None:
            self._incoming = TemporaryFile()  # noqa: SIM115 - closed with its last part, or with the process
        if self._incoming.tell() + len(part) > MOST_BYTES:
            raise FrameError(f"the pack is larger than {MOST_BYTES} bytes")
        await to_thread.run_sync(self._incoming.write, part)
        if not last:
            return
        pack, self._incoming = self._incoming, None
        with pack:
            pack.flush()
            why = ""
            try:
                await self.site.store(commit, pack)
            except EffectError as error:
                why = str(error)[:2_000]
        await self._send(Stored(commit=commit, why=why))

    async def _send(self, message: NodeMessage, *parts: bytes) -> None:
        """Send a message, and ignore a lost link: the manager requests it again."""
        with suppress(LinkLostError):
            await self.link.send(message, *parts)


def _news(key: str, number: int, event: OrderEvent) -> tuple[NodeMessage, *tuple[bytes, ...]]:
    """Convert an event of an order to a message with its parts."""
    match event:
        case Asked():
            return ModelCall(key=key, number=event.number), event.request, event.transcript
        case Dropped():
            return (DropAttempt(key=key, number=event.number),)
        case InstructionsRead(count=count):
            return (Read(key=key, count=count),)
        case _:
            return NodeEvent(key=key, number=number), *dump_event(event)
