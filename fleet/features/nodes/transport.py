"""A transport is a command line: its standard input and output are the stream, its error output says what is wrong."""

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

from fleet.features.nodes.messages import Decoder, Frame, Message, encode, to_frame

GOODBYE_S = 3.0  # how long the command may take to end once its input is closed, and again once it is asked to
LAST_WORDS_S = 0.5  # how long its error output is waited for once its stream has ended
KEPT = 2_000  # bytes of the error output


@dataclass(slots=True)
class CommandStream:
    """Satisfies `ByteStream` with a child process."""

    process: Process
    input: ByteSendStream
    output: ByteReceiveStream
    errors: ByteReceiveStream
    complaint: bytearray = field(default_factory=bytearray)
    """The end of its error output."""

    async def receive(self, max_bytes: int = 256 * 1024) -> bytes:
        return await self.output.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self.input.send(item)

    async def listen(self) -> None:
        """Keep the end of what it complains about, until it closes its error output."""
        with suppress(EndOfStream, BrokenResourceError, ClosedResourceError):
            while True:
                self.complaint += await self.errors.receive()
                del self.complaint[:-KEPT]

    async def last_words(self) -> str:
        """The last line of its complaint. Untrusted."""
        with move_on_after(LAST_WORDS_S):
            await self.listen()
        line = self.complaint.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        return "".join(char for char in line if char.isprintable())[:300]


@asynccontextmanager
async def open_command(argv: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[CommandStream]:
    """A stream to a command in a session of its own, which has ended when the block has. Raises `OSError`."""
    process = await open_process(list(argv), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env, start_new_session=True)
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise OSError("the command has no pipes")
    try:
        yield CommandStream(process, process.stdin, process.stdout, process.stderr)
    finally:
        with CancelScope(shield=True):
            await _end(process, process.stdin)
            await process.aclose()


async def _end(process: Process, stdin: ByteSendStream) -> None:
    """Close its input, then ask, then kill."""
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
# The standard input and output of this process as a stream. What others print goes to the error output instead.


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
    """The streams that this process was started with. From then on `print` writes to the error output."""
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
    """The stream ended, or the other side does not keep to the protocol."""


class ByteStream(Protocol):
    """A stream of bytes in both directions, as anyio has them."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Raises `EndOfStream`."""
        ...

    async def send(self, item: bytes) -> None: ...


@dataclass(slots=True)
class Link:
    """One end of the protocol. Messages are sent one at a time, in whole frames."""

    stream: ByteStream
    received: int = 0
    sent: int = 0
    _decoder: Decoder = field(default_factory=Decoder)
    _sending: Lock = field(default_factory=Lock)

    async def send(self, message: Message, *parts: bytes) -> None:
        """Raises `LinkLostError` where the stream has ended, and `FrameError` for a message that is too long."""
        data = encode(to_frame(message, *parts))
        try:
            async with self._sending:
                await self.stream.send(data)
        except (BrokenResourceError, ClosedResourceError, OSError) as error:
            raise LinkLostError("the stream has ended") from error
        self.sent += len(data)

    async def frames(self) -> AsyncIterator[Frame]:
        """What the other side sends, until it closes the stream. Raises `LinkLostError` or `FrameError`."""
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
