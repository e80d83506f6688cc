"""A stream that arrives while an earlier process of this node works for the same run is handed over to that process.

Each connection starts a process of its own. When a link breaks, its process goes on with its orders; the process of the
next link passes its descriptors on and waits. So what was followed is followed again, and what an attempt asked its
manager for arrives, without a daemon. Nothing but processes of the same user on the same machine can reach the socket.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    EndOfStream,
    Event,
    connect_unix,
    create_unix_listener,
    move_on_after,
)
from anyio.abc import SocketListener, TaskGroup, UNIXSocketStream

from fleet.features.nodes.messages import Decoder, Frame, FrameError, encode
from fleet.features.nodes.transport import FdStream, Link

SOCKET = "process.sock"
ANSWER_S = 2.0  # how long the earlier process may take to answer: one that hangs gets nothing
OFFER, YES, GO = b"o", b"y", b"g"
_GONE = (OSError, BrokenResourceError, ClosedResourceError, EndOfStream)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A stream that another process was given, which waits until it has no more use."""

    link: Link
    released: Event = field(default_factory=Event)


async def hand_over(folder: Path, opening: Frame, stream: FdStream) -> bool:
    """Give a stream to the process that works for the run; return once it has no more use for it.

    False if there is no such process, or it does not take it: it works under other terms, or hangs.
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
        with suppress(*_GONE):  # after this the stream is the other's
            await socket.send(GO)
            await socket.receive(1)
    return True


@asynccontextmanager
async def taking_over(
    folder: Path, tasks: TaskGroup, accepts: Callable[[Frame], bool], take: Callable[[Arrived], None]
) -> AsyncIterator[None]:
    """Take the streams of later processes while the block lasts."""
    with _short(folder) as path:
        listener = await create_unix_listener(path, mode=0o600)
    own = (folder / SOCKET).stat().st_ino

    async def heed(socket: UNIXSocketStream) -> None:
        async with socket:
            with suppress(*_GONE, FrameError):
                await _heed(socket, accepts, take)

    tasks.start_soon(_serve, listener, heed, tasks)
    try:
        yield
    finally:
        with suppress(OSError):
            if (folder / SOCKET).stat().st_ino == own:  # a later process may have put its own there
                (folder / SOCKET).unlink()


async def _serve(
    listener: SocketListener, heed: Callable[[UNIXSocketStream], Awaitable[None]], tasks: TaskGroup
) -> None:
    async with listener:
        await listener.serve(heed, tasks)  # type: ignore[arg-type] # a listener of UNIX sockets


async def _heed(socket: UNIXSocketStream, accepts: Callable[[Frame], bool], take: Callable[[Arrived], None]) -> None:
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
    """The path of the socket, by the folder's descriptor: the kernel takes 107 characters."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)
