"""The only way out of the box: a socket on which an agent inside speaks the Messages API, and nothing else.

Every request is checked, counted and recorded here, outside the box, and only here does it get the key. An agent built
by others is held to the same limits as our own workers, whatever it tries.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import anyio
from aiohttp import web

from agents.base.transcripts import Transcript
from agents.conversation.settings import AgentSettings
from agents.models.answer import CHARACTERS_PER_TOKEN, Answer, CallFault, OnBegin
from agents.models.calls import Caller, PaidCall, as_failure
from agents.models.wire.client import Client
from agents.models.wire.exchange import Exchange, Response, WireError, json_object
from fleet.core.base.usage import Usage
from fleet.core.state.facts import Failure
from fleet.ports.agents import DrainingError, Meter
from fleet.ports.worktrees import EffectError

LARGEST_BODY = 32 * 1024 * 1024
FORWARDED = ("anthropic-version", "anthropic-beta", "content-type", "user-agent")
RETURNED = ("content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry")
CALL, COUNT = "/v1/messages", "/v1/messages/count_tokens"
_ERROR_TYPES = {400: "invalid_request_error", 403: "permission_error", 404: "not_found_error", 502: "api_error"}
_SHORT = 64 * 1024  # bytes of a response that is not an answer
_STOP_S = 2.0
_POLL_S = 0.2  # how often we check whether an agent is still connected


class AttemptEndedError(Exception):
    """The attempt ended while a call was under way that had no answer yet."""


@dataclass(slots=True)
class Relay:
    """Forwards the calls of one attempt, and keeps the reason if one fails."""

    settings: AgentSettings
    caller: Caller
    client: Client
    meter: Meter
    transcript: Transcript
    model: str
    """The only model that the agent may ask."""
    turns: int
    """How often it may ask."""
    calls: int = 0
    refused: Failure | None = None
    """The limit that the agent ran into."""
    failure: Failure | None = None
    """Why the last call had no answer."""
    drained: bool = False
    """Whether a call was not made because the run is draining and it would have had to wait."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _current: "RelayedCall | None" = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request from the box."""
        if request.method != "POST" or request.path not in {CALL, COUNT}:
            return _error(404, f"{request.method} {request.path} is not forwarded")
        data = await request.read()
        body = json_object(data)
        if not body:
            return _error(400, "the body is not a JSON object")
        if body.get("model") != self.model:
            return _error(400, f"this attempt works with {self.model} and no other model")
        if request.path == COUNT:
            return await self._count(request, data)
        async with self._turn:  # one at a time: a budget is never exceeded by more than one call
            if self.calls >= self.turns:
                return self._refuse(Failure(kind="budget", summary=f"no report after {self.turns} turns"))
            return await self._call(RelayedCall(self, request, data), body.get("max_tokens"))

    async def _call(self, call: "RelayedCall", max_tokens: object) -> web.StreamResponse:
        """Make a call in line with all others of the fleet: it waits for a permit, is retried, paid and counted."""
        output = max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else self.settings.max_tokens
        maximum = Usage(cache_write=len(call.body) // CHARACTERS_PER_TOKEN + 1, output=output)
        paid = PaidCall(self.model, maximum, call.send, may_retry=lambda: call.response is None)
        turn = self.calls + 1
        result: Answer | CallFault | Failure | None = None
        self._current = call
        try:
            async with anyio.create_task_group() as tasks:
                call.waiting = tasks.cancel_scope
                tasks.start_soon(call.watch_agent)
                try:
                    result = await self.caller.make(paid, self.meter, self.transcript, turn=turn)
                except DrainingError:
                    self.drained = True
                except AttemptEndedError:
                    pass
                tasks.cancel_scope.cancel()
        finally:
            self._current = None
        match result:
            case None:
                return _error(403, "the attempt is over")
            case Failure():
                return self._refuse(result)
            case Answer():
                self.failure = None
                self.transcript.write("answer", turn=turn, **result.record())
            case CallFault(kind="configuration"):  # of the agent's own making, and no setting of ours
                self.failure = as_failure(replace(result, kind="conversation"), self.model)
            case CallFault():
                self.failure = as_failure(result, self.model)
        self.calls = turn
        message = result.message if isinstance(result, CallFault) else "the answer never began"
        return call.response or call.refusal or _error(502, message)

    def _refuse(self, limit: Failure) -> web.Response:
        self.refused = limit
        return _error(403, limit.summary)

    async def _count(self, request: web.Request, data: bytes) -> web.StreamResponse:
        """Counting tokens is free, and not a call to a model."""
        if self.client.lacks(self.model, "count_tokens"):
            return _error(404, "this service does not count tokens")
        try:
            async with self.client.forward(request.path_qs, data, _only(FORWARDED, request.headers)) as answer:
                return await self.pass_on(answer)
        except WireError as error:
            return _error(502, self.client.redact(error.fault.message))

    async def pass_on(self, answer: Response) -> web.Response:
        """A short response without the key: some services repeat the key they were given."""
        data = b""
        async for chunk in answer.chunks:
            data += chunk
            if len(data) > _SHORT:
                break
        text = self.client.redact(data[:_SHORT].decode("utf-8", "replace"))
        return web.Response(status=answer.status, text=text, headers=_only(RETURNED, answer.headers))

    def close(self) -> None:
        """Interrupt the call under way: its agent is gone."""
        if self._current is not None:
            self._current.stop()


@dataclass(slots=True)
class RelayedCall:
    """One call on its way to the service, and its answer on the way back. Even half an answer is accounted for."""

    relay: Relay
    request: web.Request
    body: bytes
    response: web.StreamResponse | None = None
    """The answer, once it has begun to reach the agent: from then on nothing can be retried."""
    refusal: web.Response | None = None
    """What the service answered instead, the last time."""
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Covers the wait for a permit."""
    _underway: anyio.CancelScope | None = None
    """Covers the time in which the service has the call."""

    def stop(self) -> None:
        (self._underway or self.waiting).cancel()

    async def watch_agent(self) -> None:
        """Give up waiting once the agent has hung up. A call under way runs to its end, because it is paid for."""
        while self._underway or not self._is_gone():  # noqa: ASYNC110 - aiohttp does not report a client that hangs up
            await anyio.sleep(_POLL_S)
        self.waiting.cancel()

    def _is_gone(self) -> bool:
        return self.request.transport is None or self.request.transport.is_closing()

    async def send(self, on_begin: OnBegin, max_tokens: int) -> Answer | CallFault:
        """Forward the request and pass its answer back, of at most so many tokens.

        Raises `AttemptEndedError` if no answer has begun by then.
        """
        self._shorten(max_tokens)
        relay = self.relay
        exchange = Exchange(relay.settings.timeouts, on_begin, relay.client.redact)
        with anyio.CancelScope() as scope:
            self._underway = scope
            result = await exchange.run(lambda: self._receive(exchange))
        self._underway = None
        if not scope.cancelled_caught:
            return result
        if not exchange.has_begun:
            raise AttemptEndedError
        return exchange.result()

    def _shorten(self, max_tokens: int) -> None:
        """Ask for a shorter answer where the budget has no room for the one that the agent asks for."""
        body = dict(json_object(self.body))
        if isinstance(body.get("max_tokens"), int) and body["max_tokens"] > max_tokens:
            self.body = json.dumps(body | {"max_tokens": max_tokens}).encode()

    async def _receive(self, exchange: Exchange) -> None:
        headers = _only(FORWARDED, self.request.headers)
        async with self.relay.client.forward(self.request.path_qs, self.body, headers) as answer:
            exchange.headers = answer.headers
            if answer.status != web.HTTPOk.status_code:
                self.refusal = await self.relay.pass_on(answer)
                exchange.refuse(answer.status, json_object(self.refusal.text or ""), answer.headers)
                return
            self.response = response = web.StreamResponse(headers=_only(RETURNED, answer.headers))
            await response.prepare(self.request)
            document: bytearray | None = bytearray() if _is_document(answer) else None
            complete = False
            try:
                async for chunk in answer.chunks:
                    if document is None:
                        exchange.feed(chunk)
                    elif len(document) < LARGEST_BODY:
                        document += chunk
                    await response.write(chunk)
                await response.write_eof()
                complete = True
            except aiohttp.ClientError:
                pass  # the agent hung up; what the call has used is charged
            finally:
                if not complete and self.request.transport is not None:
                    self.request.transport.abort()  # so that the agent sees that its answer was cut off
            if document is not None:
                exchange.feed_document(document)


@asynccontextmanager
async def listening(relay: Relay, socket: Path) -> AsyncIterator[None]:
    """The relay listens at `socket` while the block lasts. Raises `EffectError` if it can't."""
    app = web.Application(client_max_size=LARGEST_BODY)
    app.router.add_route("*", "/{path:.*}", relay.handle)
    # A handler outlives its client, because what the call used has to be charged.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=_STOP_S)
    await runner.setup()
    try:
        try:
            await web.UnixSite(runner, str(socket)).start()
        except OSError as error:
            why = f"can't open the relay to the models' service at {socket}: {error.strerror}"
            raise EffectError(Failure(kind="infrastructure", summary=why)) from error
        yield
    finally:
        relay.close()
        with anyio.move_on_after(2 * _STOP_S, shield=True):
            await runner.cleanup()


def _is_document(answer: Response) -> bool:
    """Whether the answer is not streamed."""
    return answer.headers.get("content-type", "").startswith("application/json")


def _only(names: tuple[str, ...], headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def _error(status: int, message: str) -> web.Response:
    """An error of our own. An agent repeats none but those of the service."""
    headers = {} if _ERROR_TYPES[status] == "api_error" else {"x-should-retry": "false"}
    body = {"type": "error", "error": {"type": _ERROR_TYPES[status], "message": message}}
    return web.json_response(body, status=status, headers=headers)
