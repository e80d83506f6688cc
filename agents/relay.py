"""A way out of the box to one service and nowhere else: a socket that an agent in the box speaks the Messages API to.

Every request is checked, counted and written down here, outside; only here does it get the key. An agent that was built
by others is held to the same limits as our own workers, whatever it tries.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from aiohttp import web

from agents.models.answer import CHARACTERS_PER_TOKEN, Answer, CallFault
from agents.models.calls import as_failure, doing
from agents.models.faults import from_error, shortened
from agents.models.prices import dollars
from agents.models.stream import Fold, Senseless
from agents.settings import MindSettings
from agents.transcripts import Transcript
from fleet.core.facts import Failure
from fleet.core.usage import Cost, Usage
from fleet.ports import Broken, Meter, ModelUse

LARGEST_BODY = 32 * 1024 * 1024
FORWARDED = ("anthropic-version", "anthropic-beta", "content-type", "user-agent")
RETURNED = ("content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry")
CALL, COUNT = "/v1/messages", "/v1/messages/count_tokens"
_CHUNK, _REFUSAL = 64 * 1024, 64 * 1024  # bytes
_STOP_S = 2.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What an agent may ask for."""

    model: str
    turns: int


@dataclass(slots=True)
class Relay:
    """Forwards the calls of one attempt. What went wrong last is kept for whoever has to say why it failed."""

    settings: MindSettings
    terms: Terms
    meter: Meter
    transcript: Transcript
    http: aiohttp.ClientSession
    calls: int = 0
    refused: Failure | None = None
    """The limit that an agent ran into."""
    failure: Failure | None = None
    """Why the last call had no answer."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _open: set[anyio.CancelScope] = field(default_factory=set)

    async def handle(self, asked: web.Request) -> web.StreamResponse:
        """One request from the box."""
        if asked.method != "POST" or asked.path not in {CALL, COUNT}:
            return _error(404, "not_found_error", f"{asked.method} {asked.path} is not forwarded")
        body = await asked.read()
        said = _object(body)
        if (wrong := _wrong(said, self.terms.model)) is not None:
            return _error(400, "invalid_request_error", wrong)
        if asked.path == COUNT:
            return await self._forward(asked, body, None)
        async with self._turn:  # one at a time: a budget is never exceeded by more than one call
            if (limit := await self._limit(said, len(body))) is not None:
                self.refused = limit
                return _error(403, "permission_error", limit.summary)
            self.calls += 1
            return await self._forward(asked, body, _Listener(self))

    async def _limit(self, said: Mapping[str, Any], size: int) -> Failure | None:
        """Why there is no room for this call. What it may cost at most is set aside where there is."""
        if self.calls >= self.terms.turns:
            return Failure(kind="budget", summary=f"no report after {self.terms.turns} turns")
        longest = said.get("max_tokens")
        output = longest if isinstance(longest, int) and longest > 0 else self.settings.max_tokens
        most = Usage(cache_write=size // CHARACTERS_PER_TOKEN + 1, output=output)
        cost = dollars(self.terms.model, most, self.settings.prices)
        return await self.meter.reserve(self.terms.model, Cost(calls=1, tokens=most.total, dollars=cost))

    async def _forward(self, asked: web.Request, body: bytes, listener: "_Listener | None") -> web.StreamResponse:
        """Pass a request on and its answer back. The charge comes after it, whatever happened to the answer."""
        began = anyio.current_time()
        response: web.StreamResponse = _error(503, "api_error", "the attempt is over")
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                response = await self._passed_on(asked, body, listener)
            except (aiohttp.ClientError, TimeoutError) as error:
                said = self.without_key(shortened(f"{type(error).__name__}: {error}"))
                if listener is not None:
                    listener.fault = CallFault("outage", said)
                response = _error(502, "api_error", said)
        self._open.discard(scope)
        if listener is not None:
            await listener.settle(anyio.current_time() - began)
        return response

    async def _passed_on(self, asked: web.Request, body: bytes, listener: "_Listener | None") -> web.StreamResponse:
        settings = self.settings
        headers = {name: asked.headers[name] for name in FORWARDED if name in asked.headers}
        headers |= {"x-api-key": settings.api_key, "accept-encoding": "identity"}
        url = settings.base_url.rstrip("/") + asked.path_qs
        async with self.http.post(url, data=body, headers=headers, allow_redirects=False) as answer:
            if answer.status != web.HTTPOk.status_code:
                return await self._refusal(answer, listener)
            response = web.StreamResponse(headers=_kept(answer.headers))
            await response.prepare(asked)
            try:
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    if listener is not None:
                        listener.hear(chunk)
                    await response.write(chunk)
                await response.write_eof()
            except (aiohttp.ClientError, TimeoutError):
                if asked.transport is not None:
                    asked.transport.abort()  # its reader sees that it was cut off
            return response

    def close(self) -> None:
        """Break off what is under way: nobody is left to hear it."""
        for scope in self._open:
            scope.cancel()

    async def _refusal(self, answer: aiohttp.ClientResponse, listener: "_Listener | None") -> web.Response:
        """What the service says instead of an answer. Some say which key they were given."""
        said = self.without_key((await answer.content.read(_REFUSAL)).decode("utf-8", "replace"))
        if listener is not None:
            listener.refused(answer.status, said, answer.headers)
        return web.Response(status=answer.status, body=said.encode(), headers=_kept(answer.headers))

    def without_key(self, text: str) -> str:
        return text.replace(self.settings.api_key, "[key]")


@dataclass(slots=True)
class _Listener:
    """Hears one answer go by: what it used is charged, also when it breaks off."""

    relay: Relay
    fold: Fold = field(default_factory=Fold)
    fault: CallFault | None = None
    _left: bytes = b""
    _all: bytearray = field(default_factory=bytearray)

    def hear(self, chunk: bytes) -> None:
        if len(self._all) < LARGEST_BODY:
            self._all += chunk
        *frames, self._left = (self._left + chunk).split(b"\n\n")
        try:
            for frame in frames:
                for line in frame.splitlines():
                    if line.startswith(b"data:"):
                        self.fold.take(_object(line[5:]))
        except Senseless as error:
            self.fault = CallFault("broken", f"the stream makes no sense: {error}")

    def refused(self, status: int, body: str, headers: Mapping[str, str]) -> None:
        said = _object(body.encode()).get("error")
        error = said if isinstance(said, dict) else {}
        self.fault = from_error(
            status,
            type_=str(error.get("type") or "") or None,
            code=None,
            message=str(error.get("message") or "no message"),
            headers=headers,
            now=datetime.now(UTC),
        )

    async def settle(self, seconds: float) -> None:
        """Say what was used and what was said. Called once, whatever happened."""
        relay, turn = self.relay, self.relay.calls
        result = self._whole(seconds)
        usage = result.usage if isinstance(result, Answer) else (self.fold.usage if self.fold.begun else None)
        if usage is not None:
            model = self.fold.model or relay.terms.model
            cost = dollars(model, usage, relay.settings.prices)
            what = doing(result) if isinstance(result, Answer) else "an answer that broke off"
            await relay.meter.used(ModelUse(model, usage, cost, seconds, turn, what))
        else:
            relay.meter.release(lost=self.fault is None)
        if isinstance(result, Answer):
            relay.failure = None
            said = {"stop_reason": result.stop_reason, "usage": result.usage.model_dump(), "content": result.blocks}
            relay.transcript.write("answer", turn=turn, model=result.model, **said)
        else:
            relay.failure = as_failure(result, relay.terms.model)
            relay.transcript.write("fault", kind=result.kind, message=result.message, turn=turn)

    def _whole(self, seconds: float) -> Answer | CallFault:
        if self.fault is not None:
            return self.fault
        if not self.fold.begun and self._all[:1] == b"{":
            self._take_document(_object(bytes(self._all)))
        return self.fold.answer(request_id=None, seconds=seconds)

    def _take_document(self, message: Mapping[str, Any]) -> None:
        """An answer that was not streamed."""
        try:
            self.fold.take({"type": "message_start", "message": message})
            self.fold.take({"type": "message_delta", "delta": message})
            self.fold.take({"type": "message_stop"})
        except Senseless as error:
            self.fault = CallFault("broken", f"the answer makes no sense: {error}")


@asynccontextmanager
async def open_relay(
    socket: Path, settings: MindSettings, terms: Terms, *, meter: Meter, transcript: Transcript
) -> AsyncIterator[Relay]:
    """A relay that listens at `socket` while the block lasts. Raises `Broken` where it can't."""
    timeout = aiohttp.ClientTimeout(
        total=settings.call_s, sock_connect=settings.connect_s, sock_read=settings.silence_s
    )
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as http:
        relay = Relay(settings, terms, meter, transcript, http)
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", relay.handle)
        # A handler is not ended when its client goes: what was used has to be charged all the same.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            try:
                await web.UnixSite(runner, str(socket)).start()
            except OSError as error:
                why = f"the way to the model's service can't be opened: {socket}: {error.strerror}"
                raise Broken(Failure(kind="infrastructure", summary=why)) from error
            yield relay
        finally:
            relay.close()
            with anyio.move_on_after(2 * _STOP_S, shield=True):
                await runner.cleanup()


def _wrong(asked: Mapping[str, Any], model: str) -> str | None:
    if not asked:
        return "the body is no JSON object"
    return None if asked.get("model") == model else f"this attempt works with {model} and no other model"


def _object(data: bytes) -> Mapping[str, Any]:
    """The JSON object in `data`, or an empty one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in RETURNED if name in headers}


def _error(status: int, type_: str, message: str) -> web.Response:
    headers = {"x-should-retry": "false"} if status < 500 else {}  # noqa: PLR2004 - HTTP's own
    body = {"type": "error", "error": {"type": type_, "message": message}}
    return web.json_response(body, status=status, headers=headers)
