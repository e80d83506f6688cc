"""One life of a server: connected to, asked for its tools and called. The door to the SDK's client.

A server gets no capability of ours: requests for files, roots, models or a person's input are refused by the client.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from agents.base.text import redacted
from agents.mcp.catalog import Listing, plain, read_listing
from agents.mcp.line import ServerLine, last_words, open_line
from agents.mcp.settings import ServerSettings

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
