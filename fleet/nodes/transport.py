"""A transport is a command line: its standard input and output are the stream, its error output says what is wrong."""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from subprocess import PIPE

from anyio import BrokenResourceError, CancelScope, ClosedResourceError, EndOfStream, move_on_after, open_process
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

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
