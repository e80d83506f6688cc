"""The simulated model's HTTP server: requests in, answers out, troubles on the wire. What to say is the mind's.

Listens on loopback unless told otherwise, and labels every response: nobody shall take it for a real model.
"""

import errno
import itertools
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
from aiohttp import web

from agents.simulated.cache import PromptCache
from agents.simulated.limits import Gauge
from agents.simulated.mind import Mind
from agents.simulated.moves import Cut, Refuse, Say, Stall
from agents.simulated.request import Refused, Request, parse_request
from agents.simulated.script import Script, parse_script, read_json
from agents.simulated.weather import Weather
from agents.simulated.wire import Envelope, error_body, event, events, message_body
from fleet.ports import FleetError

LARGEST_BODY = 32 * 1024 * 1024
LABEL = {"x-simulated-model": "fleet"}
PAUSES = 8  # of a streamed answer, at most: 1,000 streams must not wake up all the time
PING_S = 1.0
BACKLOG = 2048
STOP_S = 1.0


class SimulatedModel:
    """The handlers of one server."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.mind = Mind(script)
        self._cache = PromptCache(time.monotonic, script.cache_minimum_tokens)
        self._gauge = Gauge(script.limits, time.monotonic())
        self._weather = Weather(script.weather, script.seed)
        self._numbers = itertools.count(1)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/troubles", self.troubles)
        app.router.add_post("/v1/messages", self.messages)
        app.router.add_route("*", "/{path:.*}", self.unknown)
        return app

    async def healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "label": self.script.label, "simulated": True}, headers=LABEL)

    async def troubles(self, _: web.Request) -> web.Response:
        return web.json_response({"struck": self.mind.struck()}, headers=LABEL)

    async def unknown(self, asked: web.Request) -> web.Response:
        return self._error(404, f"{asked.method} {asked.path}: a simulated model answers POST /v1/messages only")

    async def messages(self, asked: web.Request) -> web.StreamResponse:
        if problem := self._key_problem(asked):
            return self._error(401, problem)
        if spell := self._weather.strikes(time.monotonic()):
            return self._error(spell.status, spell.message, retry_after=spell.retry_after)
        try:
            request = parse_request(json.loads(await asked.read()))
        except web.HTTPRequestEntityTooLarge:
            return self._error(413, "Request exceeds the maximum size")
        except (ValueError, RecursionError):
            return self._error(400, "The request body is not valid JSON")
        except Refused as refused:
            return self._error(400, str(refused))
        if self.script.models is not None and request.model not in self.script.models:
            return self._error(404, f"model: {request.model}")
        prompt = self._cache.count(request.model, request.blocks)
        if (wait := self._gauge.admit(time.monotonic(), prompt.input + prompt.cache_write)) is not None:
            return self._error(429, "This request would exceed your rate limit", retry_after=wait)
        envelope = Envelope(f"msg_simulated_{next(self._numbers):06d}", request.model, prompt)
        return await self._play(asked, request, envelope)

    def _key_problem(self, asked: web.Request) -> str | None:
        if self.script.api_key is None:
            return None
        bearer = asked.headers.get("authorization", "").removeprefix("Bearer ")
        given = asked.headers.get("x-api-key") or bearer
        return None if given == self.script.api_key else "invalid x-api-key"

    async def _play(self, asked: web.Request, request: Request, envelope: Envelope) -> web.StreamResponse:
        move = self.mind.move(request)
        reply = move.reply
        if isinstance(reply, Refuse):
            return self._refusal(reply)
        say = reply if isinstance(reply, Say) else reply.say
        think_s = self.mind.think_s(request, move)
        if request.stream:
            return await self._stream(asked, reply, envelope, think_s)
        await anyio.sleep(think_s + (reply.seconds if isinstance(reply, Stall) else 0))
        envelope.prompt.begun()
        body = json.dumps(message_body(say, envelope)).encode()
        if isinstance(reply, Cut):
            return await self._cut_short(asked, body)
        return web.Response(body=body, content_type="application/json", headers=self._headers())

    async def _stream(
        self, asked: web.Request, reply: Say | Cut | Stall, envelope: Envelope, think_s: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={**self._headers(), "cache-control": "no-cache"})
        response.content_type = "text/event-stream"
        say = reply if isinstance(reply, Say) else reply.say
        try:
            if isinstance(reply, Stall):
                await _stall(asked, response, reply)
            if not response.prepared:
                await response.prepare(asked)
            frames = list(events(say, envelope))
            if isinstance(reply, Cut):
                envelope.prompt.begun()
                return await _cut_stream(asked, response, frames, reply, think_s)
            every = max(1, -(-len(frames) // PAUSES))
            for group in range(0, len(frames), every):
                await anyio.sleep(think_s * min(every, len(frames) - group) / len(frames))
                await response.write(b"".join(frames[group : group + every]))
                envelope.prompt.begun()
            await response.write_eof()
        except ConnectionError:  # the client hung up: there is nobody left to tell
            return response
        return response

    async def _cut_short(self, asked: web.Request, body: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={**self._headers(), "content-length": str(len(body))})
        response.content_type = "application/json"
        await response.prepare(asked)
        await response.write(body[: len(body) // 2])
        _abort(asked)
        return response

    def _refusal(self, reply: Refuse) -> web.Response:
        if reply.body is not None:
            return web.Response(
                body=reply.body.encode(), status=reply.status, headers=self._headers(), content_type="text/html"
            )
        response = self._error(reply.status, reply.message, retry_after=reply.retry_after)
        response.headers.update(reply.headers)
        return response

    def _error(self, status: int, message: str, *, retry_after: float | None = None) -> web.Response:
        headers = self._headers()
        if retry_after is not None:
            headers["retry-after"] = f"{retry_after:g}"
        body = error_body(status, message, headers["request-id"])
        return web.json_response(body, status=status, headers=headers)

    def _headers(self) -> dict[str, str]:
        number = {"request-id": f"req_simulated_{next(self._numbers):06d}"}
        return LABEL | number | self._gauge.headers(datetime.now(UTC))


async def _stall(asked: web.Request, response: web.StreamResponse, stall: Stall) -> None:
    """Say nothing for a while; with pings, say that."""
    if not stall.pings:
        await anyio.sleep(stall.seconds)
        return
    await response.prepare(asked)
    left = stall.seconds
    while left > 0:
        await response.write(event("ping", {}))
        await anyio.sleep(min(PING_S, left))
        left -= PING_S


async def _cut_stream(
    asked: web.Request, response: web.StreamResponse, frames: list[bytes], cut: Cut, think_s: float
) -> web.StreamResponse:
    """Half of the answer, then an end of one of three kinds."""
    before_the_end = frames[: len(frames) // 2 + 1]
    await response.write(b"".join(before_the_end[:1]))
    await anyio.sleep(think_s / 2)
    await response.write(b"".join(before_the_end[1:]))
    if cut.how == "reset":
        _abort(asked)
        return response
    if cut.how == "error":
        error = error_body(529, "Overloaded")["error"]
        await response.write(event("error", {"error": error}))
    await response.write_eof()
    return response


def _abort(asked: web.Request) -> None:
    if asked.transport is not None:
        asked.transport.abort()


async def serve(script: Script, host: str = "127.0.0.1", port: int = 0, *, on_ready: Callable[[str], None]) -> None:
    """Serve until cancelled. `on_ready` is told the base URL. Raises `FleetError` where it can't listen."""
    runner = web.AppRunner(
        SimulatedModel(script).app(), access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            raise FleetError(f"cannot listen on {host}:{port}: {_reason(error)}") from None
        address = runner.addresses[0]
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        on_ready(f"http://{name}:{address[1]}")
        await anyio.sleep_forever()
    finally:
        with anyio.move_on_after(STOP_S * 3, shield=True):
            await runner.cleanup()


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "something else listens there; choose another --port, or 0 for any"
    return error.strerror or str(error)


def run_simulation(
    script_path: Path,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    read: Callable[[Path], object] = read_json,
) -> None:
    """Serve a script file until SIGTERM or SIGINT. `read` gets the data out of it: JSON by default."""
    script = parse_script(read(script_path), source=str(script_path))

    async def run() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_on_signal, signals, tasks.cancel_scope)
                await serve(script, host, port, on_ready=lambda url: announce(f"simulated model listening on {url}"))

    try:
        anyio.run(run)
    except* FleetError as group:
        raise group.exceptions[0] from None


async def _cancel_on_signal(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()
        return
