"""The only connection out of the sandbox: the requests of an agent to the Messages API.

Every request is checked, counted and recorded here, outside the sandbox. The key is only added here. Third-party agents
have the same limits as API workers. Requests arrive over a socket (`relay_server.py`) or from a node, including those
of API workers on nodes.
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
_SHORT = 64 * 1024  # bytes of a response other than an answer
_OK = 200
_POLL_S = 0.2  # how often the relay checks whether an agent is still connected
WAITED = "fleet-waited-s"
"""The header with the time that a call waited for its permit."""


class AttemptEndedError(Exception):
    """The attempt ended during a call without an answer."""


class AgentGoneError(Exception):
    """The agent disconnected before the end of its answer."""


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A request of an agent."""

    method: str
    target: str
    """The path with its query."""
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class RelayReply(Protocol):
    """Sends a response to the agent."""

    @property
    def is_gone(self) -> bool:
        """Whether the agent has disconnected."""
        ...

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Raises `AgentGoneError`."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Raises `AgentGoneError`."""
        ...

    async def finish(self) -> None: ...

    def abort(self) -> None:
        """Signal the agent that its answer was interrupted."""
        ...


class AgentRelay(Protocol):
    """The relay as used by a session: directly, or through a node's connection."""

    @property
    def refused(self) -> Failure | None:
        """Return the limit that the agent reached, or None."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Return why the last call had no answer, or None."""
        ...

    @property
    def drained(self) -> bool: ...

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None: ...

    def close(self) -> None: ...


OpenRelay = Callable[[Meter, Transcript, str, int], AgentRelay]
"""Opens the relay of an attempt with its budget, transcript, model and maximum number of calls."""


@dataclass(frozen=True, slots=True)
class ShortReply:
    """A response other than a model's answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class Relay:
    """Implements `AgentRelay`: forwards the calls of one attempt, and keeps the reason of a failure."""

    settings: AgentSettings
    caller: Caller
    client: Client
    meter: Meter
    transcript: Transcript
    model: str
    """The only model that the agent may call."""
    turns: int
    """The maximum number of calls."""
    warmup: CacheWarmup | None = None
    """For API workers, which have their own transcript and share prompts. None for other agents."""
    calls: int = 0
    """The number of calls; for API workers, only answered ones."""
    refused: Failure | None = None
    """The limit that the agent ran into."""
    failure: Failure | None = None
    """Why the last call had no answer."""
    drained: bool = False
    """Whether a call was skipped because it would have had to wait and the run is draining."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _current: "RelayedCall | None" = None

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        """Handle a request."""
        short: ShortReply | None
        body = json_object(request.body)
        if (request.method, request.path) == ("POST", CALL) and body.get("model") in self._models:
            async with self._turn:  # one at a time, so that a budget is exceeded by at most one call
                data = request.body if self.warmup is None else json.dumps(body).encode()  # only checked fields
                short = await self._call(RelayedCall(self, request, reply, body, data))
        else:
            short = await self._short(request, body)
        if short is not None:
            await reply.begin(short.status, short.headers)
            await reply.write(short.body)
            await reply.finish()

    @property
    def _models(self) -> tuple[str, ...]:
        """Return the allowed models: the model of the attempt, or for API workers also its fallbacks."""
        return (self.model,) if self.warmup is None else self.caller.line_of(self.model)

    async def _short(self, request: RelayRequest, body: Mapping[str, Any]) -> ShortReply:
        """Return the response to a request other than a call."""
        if request.method != "POST" or request.path not in {CALL, COUNT}:
            return _error(404, f"{request.method} {request.path} is not forwarded")
        if not body:
            return _error(400, "the body is not a JSON object")
        if request.path == CALL or body.get("model") != self.model:
            return _error(400, f"this attempt may only use the model {self.model}")
        return await self._count(request)

    async def _call(self, call: "RelayedCall") -> ShortReply | None:
        """Make a call in the shared queue: wait for a permit, retry, pay and count.

        Returns None if an answer was forwarded.
        """
        if self.warmup is not None:
            self.refused = self.failure = None  # these are only about the current call
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
                return _error(403, "the attempt has ended")
            case Failure():
                return self._refuse(result)
        self._note(result, call, turn)
        message = result.message if isinstance(result, CallFault) else "the answer did not start"
        return None if call.begun else call.refusal or _error(502, message)

    def _note(self, result: Answer | CallFault, call: "RelayedCall", turn: int) -> None:
        """Record the result of a call. API workers record their answers themselves."""
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
        if self.calls and result.kind == "configuration":  # caused by the conversation, not by the configuration
            result = replace(result, kind="conversation")
        self.failure = as_failure(result, model)

    def _refuse(self, limit: Failure) -> ShortReply:
        self.refused = limit
        return _error(403, limit.summary)

    async def _count(self, request: RelayRequest) -> ShortReply:
        """Count tokens, which is free and not a model call."""
        if self.client.lacks(self.model, "count_tokens"):
            return _error(404, "this service does not count tokens")
        try:
            async with self.client.forward(request.target, request.body, only(FORWARDED, request.headers)) as answer:
                return await self.pass_on(answer)
        except WireError as error:
            return _error(502, self.client.redact(error.fault.message))

    async def pass_on(self, answer: Response) -> ShortReply:
        """Return a short response with the key redacted, because some services repeat it."""
        data = b""
        async for chunk in answer.chunks:
            data += chunk
            if len(data) > _SHORT:
                break
        text = self.client.redact(data[:_SHORT].decode("utf-8", "replace"))
        return ShortReply(answer.status, text.encode(), only(RETURNED, answer.headers))

    def close(self) -> None:
        """Interrupt the current call, because its agent is gone."""
        if self._current is not None:
            self._current.stop()


@dataclass(slots=True)
class RelayedCall:
    """A forwarded call and its answer. Incomplete answers are also accounted for."""

    relay: Relay
    request: RelayRequest
    reply: RelayReply
    body: Mapping[str, Any]
    data: bytes
    """The body to send."""
    begun: bool = False
    """Whether part of the answer was sent to the agent, so that the call can't be retried."""
    refusal: ShortReply | None = None
    """The service's last error response."""
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Covers the wait for a permit."""
    clock: anyio.CancelScope = field(init=False)
    """Does not cover any code. Its deadline moves while the call waits for a permit."""
    _came: float = field(default_factory=anyio.current_time)
    _underway: anyio.CancelScope | None = None
    """Covers the time during which the service handles the call."""

    def __post_init__(self) -> None:
        self.clock = anyio.CancelScope(deadline=self._came)

    @property
    def warms(self) -> bool:
        """Whether the call only keeps the prompt in the cache."""
        return self.relay.warmup is not None and self.body.get("max_tokens") == 0

    def paid(self) -> PaidCall:
        """Return the call for the caller, with its maximum usage."""
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
        """Stop waiting once the agent has disconnected. A running call is completed, because it is billed."""
        while self._underway or not self.reply.is_gone:  # noqa: ASYNC110 - aiohttp reports no client that hangs up
            await anyio.sleep(_POLL_S)
        self.waiting.cancel()

    async def send(self, on_begin: OnBegin, max_tokens: int) -> Answer | CallFault:
        """Forward the request and its answer of at most `max_tokens` tokens.

        Raises `AttemptEndedError` if the attempt ends before the answer starts.
        """
        relay, timeouts = self.relay, self.relay.settings.timeouts
        self._shorten(max_tokens)
        if not self.body.get("stream"):  # no data arrives before the answer is complete
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
        """Request a shorter answer if the budget does not cover the requested length."""
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
            pass  # the usage of the call is charged
        finally:
            if not complete:
                self.reply.abort()
        if document is not None:
            exchange.feed_document(document)


def _is_document(answer: Response) -> bool:
    """Whether an answer is a single document, instead of a stream."""
    return answer.headers.get("content-type", "").startswith("application/json")


def only(names: tuple[str, ...], headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def _error(status: int, message: str) -> ShortReply:
    """Return an error of the relay. A header prevents retries, except for an `api_error`."""
    headers = {} if _ERROR_TYPES[status] == "api_error" else {"x-should-retry": "false"}
    body = {"type": "error", "error": {"type": _ERROR_TYPES[status], "message": message}}
    return ShortReply(status, json.dumps(body).encode(), {"content-type": "application/json; charset=utf-8", **headers})
