"""A server's process and the line to it: newline-delimited JSON, bounded, for the SDK's client to speak over.

The SDK's own transport reads lines of any length and passes on any number of messages.
"""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter

LONGEST_LINE = 4 * 1024 * 1024  # bytes of one message
MOST_UNASKED = 2_000  # messages since we last asked for something
GOODBYE_S = 1.0
KEPT = 2_000  # bytes of its error output
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

Incoming = SessionMessage | Exception


@dataclass(slots=True)
class ServerLine:
    """Both directions of a line, and why it was closed, if we did that."""

    received: MemoryObjectReceiveStream[Incoming]
    to_send: MemoryObjectSendStream[SessionMessage]
    closed: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""
    complaint: bytearray = field(default_factory=bytearray)
    """The end of its error output. It may hold secrets."""
    unasked: int = 0

    def close(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.closed.set()


@asynccontextmanager
async def open_line(command: Sequence[str], environment: dict[str, str]) -> AsyncIterator[ServerLine]:
    """A server in a session and an empty folder of its own, which has ended when the block has. Raises `OSError`."""
    with TemporaryDirectory(prefix="fleet-mcp-", ignore_cleanup_errors=True) as folder:
        process = await anyio.open_process(
            list(command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            cwd=Path(folder),
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise OSError("the server has no pipes")
        deliver, received = anyio.create_memory_object_stream[Incoming](0)
        to_send, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        line = ServerLine(received, to_send)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_listen, line, process.stdout, deliver)
                tasks.start_soon(_speak, line, process.stdin, outgoing)
                tasks.start_soon(_keep_errors, line, process.stderr)
                try:
                    yield line
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            for stream in (deliver, received, to_send, outgoing):
                stream.close()
            with anyio.CancelScope(shield=True):
                await _end(process, process.stdin)
                await process.aclose()


async def _listen(line: ServerLine, output: ByteReceiveStream, deliver: MemoryObjectSendStream[Incoming]) -> None:
    buffer = bytearray()
    try:
        while not line.closed.is_set():
            buffer += await output.receive(256 * 1024)
            *lines, rest = buffer.split(b"\n")
            if max(map(len, (*lines, rest))) > LONGEST_LINE:
                return line.close(f"it sent a message of more than {LONGEST_LINE // 2**20} MB")
            buffer = rest
            for text in filter(None, lines):
                line.unasked += 1
                if line.unasked > MOST_UNASKED:
                    return line.close(f"it sent more than {MOST_UNASKED} messages that nobody had asked for")
                await deliver.send(_parsed(bytes(text)))
    except _GONE:
        line.close("it ended")
    finally:
        deliver.close()
    return None


def _parsed(text: bytes) -> Incoming:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as error:
        return error


async def _speak(line: ServerLine, given: ByteSendStream, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with suppress(*_GONE):
        async for each in outgoing:
            if isinstance(each.message, JSONRPCRequest):  # an answer to a server's own request gives it nothing
                line.unasked = 0
            await given.send(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        return
    line.close("it reads nothing more")


async def _keep_errors(line: ServerLine, errors: ByteReceiveStream) -> None:
    with suppress(*_GONE):
        while True:
            line.complaint += await errors.receive()
            del line.complaint[:-KEPT]


async def _end(process: Process, given: ByteSendStream) -> None:
    """Close its input, then ask, then kill it with what it has started."""
    with suppress(*_GONE):
        await given.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with anyio.move_on_after(GOODBYE_S):
            await process.wait()
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def last_words(line: ServerLine) -> str:
    """The last line of its error output. Untrusted."""
    text: Any = line.complaint.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
    return "".join(char for char in text if char.isprintable())[:300]
