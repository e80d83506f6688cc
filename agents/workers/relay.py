"""The only way out of the box: what an agent inside asks of the Messages API, and nothing else.

Every request is checked, counted and recorded here, outside the box, and only here does it get the key. An agent built
by others is held to the same limits as our own workers, whatever it tries. How its requests get here is not known here:
over a socket (`relay_server.py`), or from a node, whose conversations ask here, too.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio

from agents.conversation.settings import AgentSettings
from agents.models.answer import CHARACTERS_PER_TOKEN, Answer, CallFault, OnBegin, size
from agents.models.cache_warmup import CacheWarmup
from agents.models.calls import WARMING, Caller, PaidCall, as_failure
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
WAITED = "fleet-waited-s"
"""The header that says how long a call waited until it could be made."""


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
    warmup: CacheWarmup | None = None
    """For a conversation of ours: it keeps its own record, and shares prompts with others. None for an agent."""
    calls: int = 0
    """Of a conversation, those that were answered."""
    refused: Failure | None = None
    """The limit that the agent ran into."""
    failure: Failure | None = None
    """Why the last call had no answer."""
    drained: bool = False
    """Whether a call was not made because the run is draining and it would have had to wait."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _current: "RelayedCall | None" = None

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        """One request."""
        short: ShortReply | None
        body = json_object(request.body)
        if (request.method, request.path) == ("POST", CALL) and body.get("model") in self._models:
            async with self._turn:  # one at a time: a budget is never exceeded by more than one call
                data = request.body if self.warmup is None else json.dumps(body).encode()  # only what was checked
                short = await self._call(RelayedCall(self, request, reply, body, data))
        else:
            short = await self._short(request, body)
        if short is not None:
            await reply.begin(short.status, short.headers)
            await reply.write(short.body)
            await reply.finish()

    @property
    def _models(self) -> tuple[str, ...]:
        """What it may ask for: its model, or what a conversation of ours may have begun with instead."""
        return (self.model,) if self.warmup is None else self.caller.line_of(self.model)

    async def _short(self, request: RelayRequest, body: Mapping[str, Any]) -> ShortReply:
        """The response to what is no call."""
        if request.method != "POST" or request.path not in {CALL, COUNT}:
            return _error(404, f"{request.method} {request.path} is not forwarded")
        if not body:
            return _error(400, "the body is not a JSON object")
        if request.path == CALL or body.get("model") != self.model:
            return _error(400, f"this attempt works with {self.model} and no other model")
        return await self._count(request)

    async def _call(self, call: "RelayedCall") -> ShortReply | None:
        """Make a call in line with all others of the fleet: it waits for a permit, is retried, paid and counted.

        None if an answer of a model was passed on.
        """
        if self.warmup is not None:
            self.refused = self.failure = None  # what it tells a conversation is about this call
        if self.calls >= self.turns:
            return self._refuse(Failure(kind="budget", summary=f"no report after {self.turns} turns"))
        turn = self.calls + (not call.warms)
        result: Answer | CallFault | Failure | None = None
        self._current = call
        try:
            async with anyio.create_task_group() as tasks:
                call.waiting = tasks.cancel_scope
                tasks.start_soon(call.watch_agent)
                try:
                    result = await self.caller.make(
                        call.paid(), self.meter, self.transcript, turn=turn, clock=call.clock
                    )
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
        self._note(result, call, turn)
        message = result.message if isinstance(result, CallFault) else "the answer never began"
        return None if call.begun else call.refusal or _error(502, message)

    def _note(self, result: Answer | CallFault, call: "RelayedCall", turn: int) -> None:
        """Keep what became of a call. A conversation of ours has its answers on record itself."""
        model, is_ours = str(call.body["model"]), self.warmup is not None
        if not is_ours or isinstance(result, Answer):
            self.calls = turn
        if isinstance(result, Answer):
            self.failure = None
            if not is_ours:
                self.transcript.write("answer", turn=turn, **result.record())
            return
        if is_ours and result.kind == "gone":
            self.caller.lost(model)
        if is_ours:
            self.client.learn(result, self.client.lacking(model), warm=call.warms)
        if self.calls and result.kind == "configuration":  # of the conversation's own making, and no setting of ours
            result = replace(result, kind="conversation")
        self.failure = as_failure(result, model)

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
    body: Mapping[str, Any]
    data: bytes
    """The body as it is sent."""
    begun: bool = False
    """Whether the answer has begun to reach the agent: from then on nothing can be retried."""
    refusal: ShortReply | None = None
    """What the service answered instead, the last time."""
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Covers the wait for a permit."""
    clock: anyio.CancelScope = field(init=False)
    """Covers nothing. Its deadline moves while the call waits for a permit."""
    _came: float = field(default_factory=anyio.current_time)
    _underway: anyio.CancelScope | None = None
    """Covers the time in which the service has the call."""

    def __post_init__(self) -> None:
        self.clock = anyio.CancelScope(deadline=self._came)

    @property
    def warms(self) -> bool:
        """Whether it only keeps the prompt of a conversation in the cache."""
        return self.relay.warmup is not None and self.body.get("max_tokens") == 0

    def paid(self) -> PaidCall:
        """The call as the caller makes it, with what it may use."""
        output = self.body.get("max_tokens")
        if not isinstance(output, int) or output <= 0:
            output = 0 if self.warms else self.relay.settings.models.max_tokens
        prompt = len(self.data) if self.relay.warmup is None else size(self.body)
        maximum = Usage(cache_write=prompt // CHARACTERS_PER_TOKEN + 1, output=output)
        doing = WARMING if self.warms else None
        return PaidCall(str(self.body["model"]), maximum, self.send, doing, may_retry=lambda: not self.begun)

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
        relay, timeouts = self.relay, self.relay.settings.timeouts
        self._shorten(max_tokens)
        if not self.body.get("stream"):  # nothing is heard before it is complete
            timeouts = replace(timeouts, silence_s=timeouts.call_s)
        shared = relay.warmup.forwarding(self.body, on_begin) if relay.warmup is not None else nullcontext(on_begin)
        async with shared as begun:
            exchange = Exchange(timeouts, begun, relay.client.redact)
            with anyio.CancelScope() as scope:
                self._underway = scope
                with exchange.receiving():
                    headers = only(FORWARDED, self.request.headers)
                    async with relay.client.forward(self.request.target, self.data, headers) as answer:
                        await self._receive(answer, exchange)
            self._underway = None
        if scope.cancelled_caught and not exchange.has_begun:
            raise AttemptEndedError
        return exchange.result()

    def _shorten(self, max_tokens: int) -> None:
        """Ask for a shorter answer where the budget has no room for the one that the agent asks for."""
        asked = self.body.get("max_tokens")
        if isinstance(asked, int) and asked > max_tokens:
            self.body = {**self.body, "max_tokens": max_tokens}
            self.data = json.dumps(self.body).encode()

    async def _receive(self, answer: Response, exchange: Exchange) -> None:
        exchange.headers = answer.headers
        if answer.status != _OK:
            self.refusal = await self.relay.pass_on(answer)
            exchange.refuse(answer.status, json_object(self.refusal.body), answer.headers)
            return
        self.begun = True
        document: bytearray | None = bytearray() if _is_document(answer) else None
        complete = False
        waited = {WAITED: f"{self.clock.deadline - self._came:.3f}"}
        try:
            await self.reply.begin(_OK, only(RETURNED, answer.headers) | waited)
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
