"""The HTTP socket of an agent in the sandbox. Passes requests to a relay, and only limits the size of bodies."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import anyio
from aiohttp import web

from agents.workers.relay import FORWARDED, LARGEST_BODY, AgentGoneError, AgentRelay, RelayRequest, only
from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import EffectError

SOCKET = "model.sock"
LONGEST_PATH = 107  # the kernel's limit for socket paths, in bytes
_STOP_S = 2.0


@dataclass(slots=True)
class HttpReply:
    """Implements `RelayReply`."""

    request: web.Request
    response: web.StreamResponse | None = None

    @property
    def is_gone(self) -> bool:
        return self.request.transport is None or self.request.transport.is_closing()

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.response = web.StreamResponse(status=status, headers=headers)
        try:
            await self.response.prepare(self.request)
        except aiohttp.ClientError as error:
            raise AgentGoneError from error

    async def write(self, chunk: bytes) -> None:
        try:
            if self.response is not None:
                await self.response.write(chunk)
        except aiohttp.ClientError as error:
            raise AgentGoneError from error

    async def finish(self) -> None:
        try:
            if self.response is not None:
                await self.response.write_eof()
        except aiohttp.ClientError as error:
            raise AgentGoneError from error

    def abort(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()


@contextmanager
def socket_in(folder: Path) -> Iterator[Path]:
    """Choose the path of an agent's socket: in this folder, or in a temporary one if the path is too long."""
    if len(os.fsencode(folder / SOCKET)) <= LONGEST_PATH:
        yield folder / SOCKET
        return
    with TemporaryDirectory(prefix="fleet-", dir="/tmp") as short:
        yield Path(short) / SOCKET


@asynccontextmanager
async def listening(relay: AgentRelay, socket: Path) -> AsyncIterator[None]:
    """Serve the relay at `socket` during the block. Raises `EffectError` if that fails."""

    async def handle(request: web.Request) -> web.StreamResponse:
        reply = HttpReply(request)
        asked = RelayRequest(request.method, request.path_qs, only(FORWARDED, request.headers), await request.read())
        try:
            await relay.handle(asked, reply)
        except AgentGoneError:
            reply.abort()
        return reply.response or web.Response(status=web.HTTPBadGateway.status_code)

    app = web.Application(client_max_size=LARGEST_BODY)
    app.router.add_route("*", "/{path:.*}", handle)
    # A handler outlives its client, because the usage of the call has to be charged.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=_STOP_S)
    await runner.setup()
    try:
        try:
            await web.UnixSite(runner, str(socket)).start()
        except OSError as error:
            why = f"can't open the relay to the model service at {socket}: {error.strerror or error}"
            raise EffectError(Failure(kind="infrastructure", summary=why)) from error
        yield
    finally:
        relay.close()
        with anyio.move_on_after(2 * _STOP_S, shield=True):
            await runner.cleanup()
