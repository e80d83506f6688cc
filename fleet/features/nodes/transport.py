"""Transports: a command line whose stdin and stdout are the stream, and whose stderr has its error messages."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from subprocess import PIPE
from typing import Protocol

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    Lock,
    move_on_after,
    open_process,
    wait_readable,
    wait_writable,
)
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from fleet.features.nodes.messages import Decoder, Frame, NodeMessage, encode, to_frame

GOODBYE_S = 3.0  # timeout for the command to exit after its stdin is closed, and again after SIGTERM
LAST_WORDS_S = 0.5  # timeout for its stderr after its stream has ended
KEPT = 2_000  # bytes of stderr


@dataclass(slots=True)
class CommandStream:
    """Satisfies `ByteStream` with a child process."""

    process: Process
    input: ByteSendStream
    output: ByteReceiveStream
    errors: ByteReceiveStream
    complaint: bytearray = field(default_factory=bytearray)
    """The end of its stderr."""

    async def receive(self, max_bytes: int = 256 * 1024) -> bytes:
        return await self.output.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self.input.send(item)

    async def listen(self) -> None:
        """Keep the end of its stderr until it closes."""
        with suppress(EndOfStream, BrokenResourceError, ClosedResourceError):
            while True:
                self.complaint += await self.errors.receive()
                del self.complaint[:-KEPT]

    async def last_stderr_line(self) -> str:
        """Return the last line of its stderr. Untrusted."""
        with move_on_after(LAST_WORDS_S):
            await self.listen()
        line = self.complaint.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        return "".join(char for char in line if char.isprintable())[:300]


@asynccontextmanager
async def open_command(argv: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[CommandStream]:
    """Start a command in a new session and stop it when the block ends. Raises `OSError`."""
    process = await open_process(list(argv), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env, start_new_session=True)
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise OSError("the command was started without pipes")
    try:
        yield CommandStream(process, process.stdin, process.stdout, process.stderr)
    finally:
        with CancelScope(shield=True):
            await _end(process, process.stdin)
            await process.aclose()


async def _end(process: Process, stdin: ByteSendStream) -> None:
    """Close its stdin, then send SIGTERM, then SIGKILL."""
    with suppress(BrokenResourceError, ClosedResourceError, OSError):
        await stdin.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with move_on_after(GOODBYE_S):
            await process.wait()
            return


# ---- stdio -----------------------------------------------------------------------------------------------------------
# The stdin and stdout of this process as a stream. Prints of other code go to stderr.


CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class FdStream:
    """Satisfies `ByteStream` with two descriptors."""

    source: int
    sink: int

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        while True:
            await wait_readable(self.source)
            try:
                data = os.read(self.source, max_bytes)
            except BlockingIOError:
                continue
            except OSError as error:
                raise BrokenResourceError from error
            if not data:
                raise EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            await wait_writable(self.sink)
            try:
                rest = rest[os.write(self.sink, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise BrokenResourceError from error


@contextmanager
def standard_streams() -> Iterator[FdStream]:
    """Take over stdin and stdout of this process. During the block, `print` writes to stderr."""
    source, sink = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(empty, 0)
        os.dup2(2, 1)
        sys.stdout.flush()
        for fd in (source, sink):
            os.set_blocking(fd, False)
            os.set_inheritable(fd, False)
        yield FdStream(source, sink)
    finally:
        for fd in (source, sink, empty):
            os.close(fd)


# ---- streams ---------------------------------------------------------------------------------------------------------
# Frames over streams of bytes: both ends of the protocol send and receive through a `Link`.


class LinkLostError(Exception):
    """The stream ended, or the other side violated the protocol."""


class ByteStream(Protocol):
    """A bidirectional byte stream with the interface of anyio."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive bytes. Raises `EndOfStream`."""
        ...

    async def send(self, item: bytes) -> None: ...


@dataclass(slots=True)
class Link:
    """One end of the protocol. Messages are sent one at a time."""

    stream: ByteStream
    received: int = 0
    sent: int = 0
    _decoder: Decoder = field(default_factory=Decoder)
    _sending: Lock = field(default_factory=Lock)

    async def send(self, message: NodeMessage, *parts: bytes) -> None:
        """Send a message. Raises `LinkLostError` if the stream has ended, `FrameError` if the message is too long."""
        data = encode(to_frame(message, *parts))
        try:
            async with self._sending:
                await self.stream.send(data)
        except (BrokenResourceError, ClosedResourceError, OSError) as error:
            raise LinkLostError("the stream has ended") from error
        self.sent += len(data)

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield received frames until the other side closes the stream. Raises `LinkLostError` or `FrameError`."""
        while True:
            try:
                data = await self.stream.receive()
            except EndOfStream:
                if not self._decoder.is_between_frames:
                    raise LinkLostError("the stream ended in the middle of a message") from None
                return
            except (BrokenResourceError, ClosedResourceError, OSError) as error:
                raise LinkLostError("the stream has ended") from error
            self.received += len(data)
            for frame in self._decoder.feed(data):
                yield frame
