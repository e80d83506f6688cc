"""One life of a server: connected to, asked for its tools and called. The door to the SDK's client.

A server gets no capability of ours: requests for files, roots, models or a person's input are refused by the client.
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
from fleet.features.tool_servers.servers import Listing, ServerSettings, plain, read_listing

# ---- line ------------------------------------------------------------------------------------------------------------
# A server's process and the line to it: newline-delimited JSON, bounded, for the SDK's client to speak over.
#
# The SDK's own transport reads lines of any length and passes on any number of messages.


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


# ---- connection ------------------------------------------------------------------------------------------------------


START_S = 30.0
MOST_PAGES = 20
_RAW: Any = TypeAdapter(dict[str, Any])
_SHOWN = 300

for _name in ("mcp", "client"):  # what a hostile server sends is not written into our log
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class ServerError(Exception):
    """A server can't be used, or did not answer. The message is for a model, and harmless."""


@dataclass(slots=True)
class Connection:
    """A server that has listed its tools."""

    client: Client
    line: ServerLine
    listing: Listing

    @property
    def alive(self) -> bool:
        return not self.line.closed.is_set()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a call, in the protocol's shape. Raises `ServerError`."""
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        return await asked(self.client, self.line, types.CallToolRequest(params=params))


@asynccontextmanager
async def connected(settings: ServerSettings) -> AsyncIterator[Connection]:
    """A server, from its start to its end. Raises `ServerError`."""
    try:
        async with open_line(settings.command, settings.environment) as line:
            with anyio.CancelScope() as life:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_end_with, line, life)
                    with anyio.fail_after(START_S) as clock:
                        async with Client(_transport(line), cache=None) as client:
                            listing = read_listing(settings.name, await _listed(client, line), settings.tools)
                            clock.deadline = float("inf")  # it has begun, and may live as long as the run
                            yield Connection(client, line, listing)
                    tasks.cancel_scope.cancel()
            if life.cancelled_caught:
                raise ServerError(_why(settings, line))
    except OSError as error:
        raise ServerError(f"{settings.command[0]} can't be started: {error.strerror}") from error


async def _end_with(line: ServerLine, life: anyio.CancelScope) -> None:
    await line.closed.wait()
    life.cancel()


@asynccontextmanager
async def _transport(line: ServerLine) -> AsyncIterator[Any]:
    yield line.received, line.to_send


async def _listed(client: Client, line: ServerLine) -> list[object]:
    """The tools of all pages, unread."""
    listed: list[object] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor)
        page = await asked(client, line, types.ListToolsRequest(params=params))
        listed += page.get("tools") or []
        cursor = page.get("nextCursor")
        if not cursor:
            return listed
    raise ServerError(f"its list of tools has more than {MOST_PAGES} pages")


async def asked(client: Client, line: ServerLine, request: Any) -> dict[str, Any]:
    """The answer to a request, as it came: what a server says of its own results is not used to judge them."""
    try:
        answer: dict[str, Any] = await client.session.send_request(request, _RAW)
    except MCPError as error:
        if line.closed.is_set() or error.code == types.CONNECTION_CLOSED:
            raise ServerError(line.reason or "it ended") from None
        raise ServerError(f"it refused: {plain(error.message)[:_SHOWN]}") from None
    except ValidationError as error:  # of the protocol's own shapes
        where = ".".join(map(str, error.errors(include_input=False, include_url=False)[0]["loc"]))
        raise ServerError(f"its answer has another shape than the protocol's, at {plain(where)[:80]}") from None
    return answer


def _why(settings: ServerSettings, line: ServerLine) -> str:
    """Why a server is gone, with its own last words for the operator."""
    words = redacted(last_words(line), settings.secrets)
    return f"{line.reason}; it said: {words}" if words else line.reason
