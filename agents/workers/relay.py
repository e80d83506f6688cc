"""The only way out of the box: what an agent inside asks of the Messages API, and nothing else.

Every request is checked, counted and recorded here, outside the box, and only here does it get the key. An agent built
by others is held to the same limits as our own workers, whatever it tries. How its requests get here is not known here:
over a socket (`relay_server.py`), or from a node.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio

from agents.conversation.settings import AgentSettings
from agents.models.answer import CHARACTERS_PER_TOKEN, Answer, CallFault, OnBegin
from agents.models.calls import Caller, PaidCall, as_failure
from agents.models.client import Client
from agents.models.exchange import Exchange, Response, WireError, json_object
from agents.models.transcripts import Transcript
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Failure
from fleet.ports.agents import DrainingError, Meter

LARGEST_BODY = 32 * 1024 * 1024
FORWARDED = ("anthropic-version", "anthropic-beta", "content-type", "user-agent")
RETURNED = ("content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry")
CALL, COUNT = "/v1/messages", "/v1/messages/count_tokens"
_ERROR_TYPES = {400: "invalid_request_error", 403: "permission_error", 404: "not_found_error", 502: "api_error"}
_SHORT = 64 * 1024  # bytes of a response that is not an answer
_OK = 200
_POLL_S = 0.2  # how often we check whether an agent is still connected


class AttemptEndedError(Exception):
    """The attempt ended while a call was under way that had no answer yet."""


class AgentGoneError(Exception):
    """The agent hung up before it had its answer."""


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """What an agent sent."""

    method: str
    target: str
    """The path with its query."""
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class RelayReply(Protocol):
    """The way back to the agent."""

    @property
    def is_gone(self) -> bool:
        """Whether the agent has hung up."""
        ...

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Raises `AgentGoneError`."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Raises `AgentGoneError`."""
        ...

    async def finish(self) -> None: ...

    def abort(self) -> None:
        """Let the agent see that its answer was cut off."""
        ...


class AgentRelay(Protocol):
    """What a session needs: the relay itself, or a node's way to it."""

    @property
    def refused(self) -> Failure | None:
        """The limit that the agent ran into."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why the last call had no answer."""
        ...

    @property
    def drained(self) -> bool: ...

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None: ...

    def close(self) -> None: ...


OpenRelay = Callable[[Meter, Transcript, str, int], AgentRelay]
"""A relay for one attempt: its budget, its transcript, its model, and how often it may ask."""


@dataclass(frozen=True, slots=True)
class ShortReply:
    """A response that is no answer of a model."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class Relay:
    """Satisfies `AgentRelay`: forwards the calls of one attempt, and keeps the reason if one fails."""

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

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        """One request of an agent."""
        short = await self._handled(request, reply)
        if short is not None:
            await reply.begin(short.status, short.headers)
            await reply.write(short.body)
            await reply.finish()

    async def _handled(self, request: RelayRequest, reply: RelayReply) -> ShortReply | None:
        """None if an answer of a model was passed on."""
        if request.method != "POST" or request.path not in {CALL, COUNT}:
            return _error(404, f"{request.method} {request.path} is not forwarded")
        body = json_object(request.body)
        if not body:
            return _error(400, "the body is not a JSON object")
        if body.get("model") != self.model:
            return _error(400, f"this attempt works with {self.model} and no other model")
        if request.path == COUNT:
            return await self._count(request)
        async with self._turn:  # one at a time: a budget is never exceeded by more than one call
            if self.calls >= self.turns:
                return self._refuse(Failure(kind="budget", summary=f"no report after {self.turns} turns"))
            return await self._call(RelayedCall(self, request, reply, request.body), body.get("max_tokens"))

    async def _call(self, call: "RelayedCall", max_tokens: object) -> ShortReply | None:
        """Make a call in line with all others of the fleet: it waits for a permit, is retried, paid and counted."""
        output = max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else self.settings.models.max_tokens
        maximum = Usage(cache_write=len(call.body) // CHARACTERS_PER_TOKEN + 1, output=output)
        paid = PaidCall(self.model, maximum, call.send, may_retry=lambda: not call.begun)
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
        return None if call.begun else call.refusal or _error(502, message)

    def _refuse(self, limit: Failure) -> ShortReply:
        self.refused = limit
        return _error(403, limit.summary)

    async def _count(self, request: RelayRequest) -> ShortReply:
        """Counting tokens is free, and not a call to a model."""
        if self.client.lacks(self.model, "count_tokens"):
            return _error(404, "this service does not count tokens")
        try:
            async with self.client.forward(request.target, request.body, only(FORWARDED, request.headers)) as answer:
                return await self.pass_on(answer)
        except WireError as error:
            return _error(502, self.client.redact(error.fault.message))

    async def pass_on(self, answer: Response) -> ShortReply:
        """A short response without the key: some services repeat the key they were given."""
        data = b""
        async for chunk in answer.chunks:
            data += chunk
            if len(data) > _SHORT:
                break
        text = self.client.redact(data[:_SHORT].decode("utf-8", "replace"))
        return ShortReply(answer.status, text.encode(), only(RETURNED, answer.headers))

    def close(self) -> None:
        """Interrupt the call under way: its agent is gone."""
        if self._current is not None:
            self._current.stop()


@dataclass(slots=True)
class RelayedCall:
    """One call on its way to the service, and its answer on the way back. Even half an answer is accounted for."""

    relay: Relay
    request: RelayRequest
    reply: RelayReply
    body: bytes
    begun: bool = False
    """Whether the answer has begun to reach the agent: from then on nothing can be retried."""
    refusal: ShortReply | None = None
    """What the service answered instead, the last time."""
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Covers the wait for a permit."""
    _underway: anyio.CancelScope | None = None
    """Covers the time in which the service has the call."""

    def stop(self) -> None:
        (self._underway or self.waiting).cancel()

    async def watch_agent(self) -> None:
        """Give up waiting once the agent has hung up. A call under way runs to its end, because it is paid for."""
        while self._underway or not self.reply.is_gone:  # noqa: ASYNC110 - aiohttp reports no client that hangs up
            await anyio.sleep(_POLL_S)
        self.waiting.cancel()

    async def send(self, on_begin: OnBegin, max_tokens: int) -> Answer | CallFault:
        """Forward the request and pass its answer back, of at most so many tokens.

        Raises `AttemptEndedError` if no answer has begun by then.
        """
        self._shorten(max_tokens)
        relay = self.relay
        exchange = Exchange(relay.settings.timeouts, on_begin, relay.client.redact)
        with anyio.CancelScope() as scope:
            self._underway = scope
            with exchange.receiving():
                await self._receive(exchange)
        self._underway = None
        if scope.cancelled_caught and not exchange.has_begun:
            raise AttemptEndedError
        return exchange.result()

    def _shorten(self, max_tokens: int) -> None:
        """Ask for a shorter answer where the budget has no room for the one that the agent asks for."""
        body = dict(json_object(self.body))
        if isinstance(body.get("max_tokens"), int) and body["max_tokens"] > max_tokens:
            self.body = json.dumps(body | {"max_tokens": max_tokens}).encode()

    async def _receive(self, exchange: Exchange) -> None:
        headers = only(FORWARDED, self.request.headers)
        async with self.relay.client.forward(self.request.target, self.body, headers) as answer:
            exchange.headers = answer.headers
            if answer.status != _OK:
                self.refusal = await self.relay.pass_on(answer)
                exchange.refuse(answer.status, json_object(self.refusal.body), answer.headers)
                return
            self.begun = True
            document: bytearray | None = bytearray() if _is_document(answer) else None
            complete = False
            try:
                await self.reply.begin(_OK, only(RETURNED, answer.headers))
                async for chunk in answer.chunks:
                    if document is None:
                        exchange.feed(chunk)
                    elif len(document) < LARGEST_BODY:
                        document += chunk
                    await self.reply.write(chunk)
                await self.reply.finish()
                complete = True
            except AgentGoneError:
                pass  # what the call has used is charged
            finally:
                if not complete:
                    self.reply.abort()
            if document is not None:
                exchange.feed_document(document)


def _is_document(answer: Response) -> bool:
    """Whether the answer is not streamed."""
    return answer.headers.get("content-type", "").startswith("application/json")


def only(names: tuple[str, ...], headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def _error(status: int, message: str) -> ShortReply:
    """An error of our own. An agent repeats none but those of the service."""
    headers = {} if _ERROR_TYPES[status] == "api_error" else {"x-should-retry": "false"}
    body = {"type": "error", "error": {"type": _ERROR_TYPES[status], "message": message}}
    return ShortReply(status, json.dumps(body).encode(), {"content-type": "application/json; charset=utf-8", **headers})
