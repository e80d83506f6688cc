"""A transport for the official client that keeps every message, and holds each against the protocol's own shapes."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE
from typing import Any, Literal

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter, methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

LONGEST = 10_000_000
Way = Literal["client", "server"]


@dataclass
class Wire:
    """What was said on one line, by whom."""

    messages: list[tuple[Way, dict[str, Any]]] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Every message that the schema of its version refuses."""
        version, asked, found = HANDSHAKE_PROTOCOL_VERSIONS[-1], dict[Any, tuple[Way, str]](), list[str]()
        for way, message in self.messages:
            meta = message.get("params", {}).get("_meta", {})
            version = meta.get("io.modelcontextprotocol/protocolVersion", version)
            try:
                _check(way, message, version, asked)
            except (ValueError, KeyError) as error:
                found.append(f"{way}: {json.dumps(message)[:200]}: {error}")
            if "result" in message and "protocolVersion" in message["result"]:
                version = message["result"]["protocolVersion"]
        return found


def _check(way: Way, message: dict[str, Any], version: str, asked: dict[Any, tuple[Way, str]]) -> None:
    jsonrpc_message_adapter.validate_python(message, by_name=False)
    method, params = message.get("method", ""), message.get("params")
    if method and "id" in message:
        asked[message["id"]] = (way, method)
        request = methods.validate_client_request if way == "client" else methods.parse_server_request
        request(method, version, params)
    elif method:
        note = methods.validate_client_notification if way == "client" else methods.parse_server_notification
        note(method, version, params)
    elif "result" in message:
        _, called = asked[message["id"]]
        validate = methods.validate_server_result if way == "server" else methods.validate_client_result
        validate(called, version, message["result"])


def on_wire(wire: Wire, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Transport:
    """A server as a child, which the official client speaks to."""
    return _opened(wire, command, cwd, env)


@asynccontextmanager
async def _opened(wire: Wire, command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> AsyncIterator[Any]:
    to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None, cwd=cwd, env=env) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines, given = BufferedByteReceiveStream(process.stdout), process.stdin

        async def listen() -> None:
            async with to_client:
                while True:
                    try:
                        line = await lines.receive_until(b"\n", LONGEST)
                    except (anyio.IncompleteRead, anyio.EndOfStream):
                        return
                    wire.messages.append(("server", json.loads(line)))
                    await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

        async def speak() -> None:
            async with from_client:
                async for each in from_client:
                    line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    wire.messages.append(("client", json.loads(line)))
                    await given.send(line.encode() + b"\n")

        async with anyio.create_task_group() as tasks, read, write:
            tasks.start_soon(listen)
            tasks.start_soon(speak)
            yield read, write
            await given.aclose()
            with anyio.move_on_after(20):
                await process.wait()
            tasks.cancel_scope.cancel()
