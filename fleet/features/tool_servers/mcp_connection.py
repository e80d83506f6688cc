"""The connection to a running server: lists and calls its tools. The only module that imports the SDK's client.

The client declares no capabilities: it rejects a server's requests for files, roots, model calls or user input.
"""

import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import TypeAdapter, ValidationError

from agents.models.text import redacted
from fleet.features.tool_servers.servers import ServerSettings, ToolListing, plain, read_listing

# ---- line ------------------------------------------------------------------------------------------------------------
# The process of a server and its streams: newline-delimited JSON with limits, used by the SDK's client.
#
# The SDK's transport limits neither the length of lines nor the number of messages.


LONGEST_LINE = 4 * 1024 * 1024  # bytes of one message
MOST_UNASKED = 2_000  # messages since the last request
GOODBYE_S = 1.0
KEPT = 2_000  # bytes of stderr
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)

Incoming = SessionMessage | Exception


@dataclass(slots=True)
class ServerLine:
    """Both directions of a connection, and the reason why it was closed."""

    received: MemoryObjectReceiveStream[Incoming]
    to_send: MemoryObjectSendStream[SessionMessage]
    closed: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""
    complaint: bytearray = field(default_factory=bytearray)
    """The end of stderr. It may contain secrets."""
    unasked: int = 0

    def close(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.closed.set()


@asynccontextmanager
async def open_line(command: Sequence[str], environment: dict[str, str]) -> AsyncIterator[ServerLine]:
    """Run a server during the block, in a new session and an empty folder. Raises `OSError`."""
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
                    return line.close(f"it sent more than {MOST_UNASKED} unsolicited messages")
                await deliver.send(_parsed(bytes(text)))
    except _GONE:
        line.close("it exited")
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
            if isinstance(each.message, JSONRPCRequest):  # answers to the server's requests don't reset the limit
                line.unasked = 0
            await given.send(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        return
    line.close("it no longer reads its input")


async def _keep_errors(line: ServerLine, errors: ByteReceiveStream) -> None:
    with suppress(*_GONE):
        while True:
            line.complaint += await errors.receive()
            del line.complaint[:-KEPT]


async def _end(process: Process, given: ByteSendStream) -> None:
    """Close stdin, then send SIGTERM, then SIGKILL, to the server and its children."""
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


def last_stderr_line(line: ServerLine) -> str:
    """Return the last line of stderr. Untrusted."""
    text: Any = line.complaint.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
    return "".join(char for char in text if char.isprintable())[:300]


# ---- connection ------------------------------------------------------------------------------------------------------


START_S = 30.0
MOST_PAGES = 20
_RAW: Any = TypeAdapter(dict[str, Any])
_SHOWN = 300

for _name in ("mcp", "client"):  # a hostile server must not write to the log
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class ServerError(Exception):
    """A server failed or did not answer. The message is safe to show to a model."""


@dataclass(slots=True)
class McpConnection:
    """A connected server with its tools."""

    client: Client
    line: ServerLine
    listing: ToolListing

    @property
    def alive(self) -> bool:
        return not self.line.closed.is_set()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return the protocol result. Raises `ServerError`."""
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        return await asked(self.client, self.line, types.CallToolRequest(params=params))


@asynccontextmanager
async def connected(settings: ServerSettings) -> AsyncIterator[McpConnection]:
    """Start a server, connect to it, and stop it after the block. Raises `ServerError`."""
    try:
        async with open_line(settings.command, settings.environment) as line:
            with anyio.CancelScope() as life:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_end_with, line, life)
                    with anyio.fail_after(START_S) as clock:
                        async with Client(_transport(line), cache=None) as client:
                            listing = read_listing(settings.name, await _list(client, line), settings.tools)
                            clock.deadline = float("inf")  # it has started and may run as long as the run
                            yield McpConnection(client, line, listing)
                    tasks.cancel_scope.cancel()
            if life.cancelled_caught:
                raise ServerError(_why(settings, line))
    except OSError as error:
        raise ServerError(f"{settings.command[0]} could not be started: {error.strerror}") from error


async def _end_with(line: ServerLine, life: anyio.CancelScope) -> None:
    await line.closed.wait()
    life.cancel()


@asynccontextmanager
async def _transport(line: ServerLine) -> AsyncIterator[Any]:
    yield line.received, line.to_send


async def _list(client: Client, line: ServerLine) -> list[object]:
    """Return the tools of all pages, unparsed."""
    listed: list[object] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor)
        page = await asked(client, line, types.ListToolsRequest(params=params))
        listed += page.get("tools") or []
        cursor = page.get("nextCursor")
        if not cursor:
            return listed
    raise ServerError(f"its tool list has more than {MOST_PAGES} pages")


async def asked(client: Client, line: ServerLine, request: Any) -> dict[str, Any]:
    """Send a request and return the raw answer. The result schema that a server declares is not used."""
    try:
        answer: dict[str, Any] = await client.session.send_request(request, _RAW)
    except MCPError as error:
        if line.closed.is_set() or error.code == types.CONNECTION_CLOSED:
            raise ServerError(line.reason or "it exited") from None
        raise ServerError(f"it returned an error: {plain(error.message)[:_SHOWN]}") from None
    except ValidationError as error:  # raised for the protocol's own types
        where = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
        raise ServerError(f"its answer does not follow the protocol, at {plain(where)[:80]}") from None
    return answer


def _why(settings: ServerSettings, line: ServerLine) -> str:
    """Describe why a server exited, with the end of its error output."""
    words = redacted(last_stderr_line(line), settings.secrets)
    return f"{line.reason}; stderr: {words}" if words else line.reason
