"""Model calls of attempts on nodes: HTTP to the manager's relay, for API workers and other agents.

The manager makes the calls and pays for them, as for local attempts. A node may only request calls that its order
allows. It gets neither keys nor prices, and its messages are untrusted.
"""

import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from random import Random, SystemRandom
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.conversation.guards import AttemptBudget
from agents.models.answer import ADAPTIVE, Answer, CallFault, Request, parameters_of
from agents.models.calls import Caller, Clock, backoff_s, gone_meanwhile
from agents.models.exchange import Exchange, Timeouts
from agents.models.prices import LIFETIMES, Lifetimes, ModelLimits
from agents.models.service import RetryPolicy
from agents.models.transcripts import Transcript
from agents.workers.registry import WorkerContext
from agents.workers.relay import CALL, WAITED, AgentGoneError, AgentRelay, OpenRelay, RelayReply, RelayRequest
from fleet.core.base.output import parse_json
from fleet.core.base.usage import Capability
from fleet.core.facts.facts import Failure
from fleet.ports.agents import AttemptCalls, CallRefusedError, DrainingError, Meter, Reply
from fleet.ports.orders import AttemptOrder, OpenCalls
from fleet.ports.worktrees import EffectError

# ---- messages --------------------------------------------------------------------------------------------------------
# An HTTP request in transit: its head as one line of JSON, then its unchanged body. The answer has three parts: a head,
# the body, and the state of the session.


LONGEST_HEAD = 16 * 1024
LONGEST_SYSTEM = 4_000_000
MOST_MESSAGES = 20_000
MOST_BLOCKS = 20_000
MOST_TOOLS = 64
BODY = b"="
"""Prefix of parts that belong to the body of an answer."""
MODELS = "/v1/models/"
HEADERS = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
"""Headers of every request of an API worker's conversation."""
_OK = 200
_CAPABILITIES: tuple[Capability, ...] = get_args(Capability)

Model = Annotated[str, Field(min_length=1, max_length=200)]
Parsed = TypeVar("Parsed", bound=BaseModel)


class CallLine(Protocol):
    """The connection from an attempt on a node to its manager, which makes the calls."""

    def call(self, request: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Request a call. Yields the parts of the answer. Leaving the block early cancels the rest."""
        ...


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RequestHead(_Document):
    method: Annotated[str, Field(max_length=20, pattern=r"^[A-Z]+$")]
    target: Annotated[str, Field(max_length=2_000, pattern=r"^/[!-~]*$")]
    headers: Annotated[dict[str, Annotated[str, Field(pattern=r"^[ -~]*$")]], Field(max_length=16)]


class ReplyHead(_Document):
    """The head of an answer. Its body and `ReplyEnd` follow."""

    status: int
    headers: dict[str, str]


class ReplyEnd(_Document):
    """The state of the session so far; for an API worker's conversation, the result of this call."""

    complete: bool
    refused: Failure | None
    failure: Failure | None
    drained: bool


class ModelNotes(_Document):
    """The answer to a GET of `MODELS` with a model: facts about the model for a conversation."""

    id: Model
    """The model to start with: a fallback if the service no longer has the requested one."""
    limits: ModelLimits
    touches: int
    without: frozenset[Capability]


def dump_request(request: RelayRequest) -> bytes:
    head = RequestHead(method=request.method, target=request.target, headers=dict(request.headers))
    return head.model_dump_json().encode() + b"\n" + request.body


def load_request(data: bytes) -> RelayRequest:
    """Parse a request of a node. Raises `CallRefusedError`."""
    line, newline, body = data.partition(b"\n")
    if not newline or len(line) > LONGEST_HEAD:
        raise CallRefusedError("the node's request is missing its head")
    head = _honest(RequestHead, line)
    return RelayRequest(head.method, head.target, head.headers, body)


def _honest(kind: type[Parsed], data: bytes) -> Parsed:
    """Parse a document of a node. Raises `CallRefusedError`."""
    try:
        return kind.model_validate(parse_json(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "request"
        raise CallRefusedError(f"the node's request is invalid at {where!r}: {first['msg']}"[:300]) from None
    except ValueError:
        raise CallRefusedError("the node's request is not JSON") from None


def load(kind: type[Parsed], data: bytes) -> Parsed:
    """Parse a manager's answer. Raises `ValueError`."""
    return kind.model_validate(parse_json(data))


# ---- a conversation of ours ------------------------------------------------------------------------------------------
# The limits of a node's requests. A node that exceeds them is malicious or broken and gets no more work.


MOST_NOTES = 200  # how often a conversation may request facts about its model
_TOOL_TYPES = frozenset({"", "custom", "bash_20250124", "text_editor_20250728"})
"""Tool types that workers have. Tools that run on the service cost money and are excluded."""


class _Message(_Document):
    role: Literal["user", "assistant"]
    content: Annotated[list[Any], Field(min_length=1, max_length=MOST_BLOCKS)]

    @model_validator(mode="after")
    def _has_blocks(self) -> "_Message":
        if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in self.content):
            raise ValueError("the content of a message is not a list of blocks")
        return self


class _System(_Document):
    type: Literal["text"]
    text: Annotated[str, Field(max_length=LONGEST_SYSTEM)]
    cache_control: dict[str, str] | None = None


class _Effort(_Document):
    effort: Annotated[str, Field(max_length=40)]


class _Previous(_Document):
    previous_message_id: Annotated[str, Field(max_length=200)] | None


class _Body(_Document):
    """The body of a call, as made by `parameters_of`."""

    model: Model
    max_tokens: Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
    stream: bool = False
    system: Annotated[list[_System], Field(max_length=1)]
    tools: Annotated[list[dict[str, Any]], Field(max_length=MOST_TOOLS)]
    messages: Annotated[list[_Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    thinking: dict[str, str] | None = None
    output_config: _Effort | None = None
    diagnostics: _Previous | None = None


@dataclass(slots=True)
class ConversationRules:
    """The calls that the order of a conversation allows."""

    model: str
    effort: str | None
    max_tokens: int
    turns: int
    caller: Caller
    answered: int = 0
    _asked: int = 0
    _warmed: int = 0
    _noted: int = 0
    _touches: int = 0
    """The highest number of touches sent to the node."""
    _told: set[str] = field(default_factory=set)
    """The fallback models sent to the node."""

    def check(self, request: RelayRequest) -> int:
        """Return how many turns a request takes. Raises `CallRefusedError` if the order does not allow the request."""
        if (request.method, request.target, request.headers) != ("POST", CALL, HEADERS):
            raise CallRefusedError(f"the node requested {request.method} {request.target}"[:300])
        body = _honest(_Body, request.body)
        self._check_model(body.model)
        effort = body.output_config.effort if body.output_config is not None else None
        if effort != self.effort and not (effort is None and self.caller.lacks(body.model, "effort")):
            raise CallRefusedError(f"the node requested the effort {effort!r}, but its order has {self.effort!r}")
        if body.max_tokens > self.max_tokens:
            raise CallRefusedError(f"the node requested an answer of {body.max_tokens} tokens")
        if any(str(tool.get("type", "")) not in _TOOL_TYPES for tool in body.tools):
            raise CallRefusedError("the node requested a tool that runs on the service")
        if body.thinking not in (None, ADAPTIVE):
            raise CallRefusedError("the node requested a kind of thinking that its order does not allow")
        turns = int(body.max_tokens > 0)
        self._asked, self._warmed = self._asked + turns, self._warmed + 1 - turns
        tries = self.turns * self.caller.policy.retries + len(_CAPABILITIES)
        warmed = self.turns * self._touches
        if self.answered + turns > self.turns or self._asked > tries or self._warmed > warmed:
            raise CallRefusedError(f"the node made more than {self.turns} calls")
        return turns

    async def notes(self, model: str) -> ModelNotes:
        """Raises `CallRefusedError`."""
        self._noted += 1
        self._check_model(model)
        if self._noted > MOST_NOTES:
            raise CallRefusedError(f"the node requested facts about its model more than {MOST_NOTES} times")
        instead, lacks = self.caller.available(model), self.caller.lacks
        touches = self.caller.touches(instead)
        self._told, self._touches = self._told | {instead}, max(self._touches, touches)
        return ModelNotes(
            id=instead,
            limits=await self.caller.limits(instead),
            touches=touches,
            without=frozenset(each for each in _CAPABILITIES if lacks(instead, each)),
        )

    def _check_model(self, model: str) -> None:
        if model not in {self.model, *self._told}:
            raise CallRefusedError(f"the node requested the model {model!r}, but its order has {self.model!r}"[:300])


# ---- the manager's end -----------------------------------------------------------------------------------------------


LONGEST_TRANSCRIPT = 64 * 1024 * 1024


class NoCalls:
    """Implements `AttemptCalls` for a worker that does not call models through fleet."""

    drained = False

    async def answer(self, request: bytes, reply: Reply) -> None:
        del request, reply
        raise CallRefusedError("the node requested a model call, but its order is a program")

    def keep(self, transcript: bytes) -> None:
        del transcript

    def close(self) -> None:
        pass


@contextmanager
def no_calls(order: AttemptOrder, meter: Meter) -> Iterator[AttemptCalls]:
    """Open no calls, for agents without models."""
    del order, meter
    yield NoCalls()


def calls_of(context: WorkerContext, caller: Caller, open_ours: OpenRelay) -> OpenCalls:
    """Open the calls of attempts on nodes. `open_ours` opens the relay for an API worker's conversation."""

    @contextmanager
    def opened(order: AttemptOrder, meter: Meter) -> Iterator[AttemptCalls]:
        settings, brief = context.settings.workers[order.worker], order.brief
        if not settings.calls_models:
            yield NoCalls()
            return
        usual = next(iter(settings.choices), context.settings.models.worker)
        model = brief.model or usual
        budget = AttemptBudget(meter, settings.tokens, settings.dollars)
        is_agent = settings.kind in {"claude-code", "acp"}
        rules = ConversationRules(model, brief.effort, context.settings.models.max_tokens, settings.turns, caller)
        with context.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            open_relay = context.open_relay if is_agent else open_ours
            relay = open_relay(budget, transcript, model, settings.turns)
            yield RelayCalls(relay, transcript, None if is_agent else rules)

    return opened


@dataclass(slots=True)
class LineReply:
    """Implements `RelayReply` for the answer to a node's call."""

    reply: Reply
    as_one: bool = False
    """Whether the body is sent in one part, because it is only read when it is complete."""
    complete: bool = False
    _body: bytearray = field(default_factory=bytearray)

    @property
    def is_gone(self) -> bool:
        return self.reply.is_dropped

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self.reply.send(ReplyHead(status=status, headers=dict(headers)).model_dump_json().encode())

    async def write(self, chunk: bytes) -> None:
        if self.is_gone:
            raise AgentGoneError
        self._body += chunk
        if not self.as_one:
            await self._send_body()

    async def finish(self) -> None:
        await self._send_body()
        self.complete = True

    async def _send_body(self) -> None:
        part, self._body = bytes(self._body), bytearray()
        if part:
            await self.reply.send(BODY + part)

    def abort(self) -> None:
        self.complete = False


@dataclass(slots=True)
class RelayCalls:
    """Implements `AttemptCalls` with the same relay as local agents."""

    relay: AgentRelay
    transcript: Transcript
    rules: ConversationRules | None = None
    """None if the order is a third-party agent, for whose requests the node is not responsible."""
    _kept: int = 0

    @property
    def drained(self) -> bool:
        return self.relay.drained

    async def answer(self, request: bytes, reply: Reply) -> None:
        asked, rules, relay = load_request(request), self.rules, self.relay
        way_back, turns = LineReply(reply, as_one=rules is not None), 0
        try:
            if rules is not None and asked.method == "GET":
                notes = await rules.notes(asked.target.removeprefix(MODELS))
                await way_back.begin(_OK, {"content-type": HEADERS["content-type"]})
                await way_back.write(notes.model_dump_json().encode())
                await way_back.finish()
            else:
                turns = rules.check(asked) if rules is not None else 0
                await relay.handle(asked, way_back)
        except AgentGoneError:
            return
        if rules is not None and way_back.complete and not relay.refused and not relay.failure:
            rules.answered += turns
        end = ReplyEnd(complete=way_back.complete, refused=relay.refused, failure=relay.failure, drained=relay.drained)
        await reply.send(end.model_dump_json().encode())

    def keep(self, transcript: bytes) -> None:
        self._kept += len(transcript)
        if self._kept <= LONGEST_TRANSCRIPT:
            self.transcript.append(transcript)

    def close(self) -> None:
        self.relay.close()


# ---- the node's end --------------------------------------------------------------------------------------------------
# The node's side: requests go to the manager's relay, and answers come back. No key or service is known here.


_POLL_S = 0.2  # how often the relay checks whether an agent is still connected
_CUT_OFF = "the manager's relay did not answer"
_NO_LIMITS = Timeouts(silence_s=math.inf, call_s=math.inf)  # the manager has the limits
_TELLING = frozenset({400, 404})
"""Statuses of rejections that may change what is known about the model."""


@dataclass(slots=True)
class LineRelay:
    """Implements `AgentRelay`. Only the manager checks requests and knows their cost."""

    line: CallLine
    refused: Failure | None = None
    failure: Failure | None = None
    drained: bool = False
    _open: set[anyio.CancelScope] = field(default_factory=set)

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        async with anyio.create_task_group() as tasks:
            self._open.add(tasks.cancel_scope)
            try:
                tasks.start_soon(self._watch, reply, tasks.cancel_scope)
                await self.forward(request, reply)
            except AgentGoneError:
                reply.abort()
            finally:
                self._open.discard(tasks.cancel_scope)
            tasks.cancel_scope.cancel()

    async def forward(self, request: RelayRequest, reply: RelayReply) -> None:
        """Forward a request and wait for its answer."""
        complete = False
        try:
            async with self.line.call(dump_request(request)) as parts:
                begun = False
                async for part in parts:
                    if not part:
                        continue
                    if part.startswith(BODY):
                        await reply.write(part.removeprefix(BODY))
                    elif not begun:
                        head, begun = load(ReplyHead, part), True
                        await reply.begin(head.status, head.headers)
                    else:
                        complete = self._take(load(ReplyEnd, part))
            if complete:
                await reply.finish()
        except ValueError as error:
            self.failure = Failure(kind="infrastructure", summary=_CUT_OFF, evidence=str(error)[:300])
        finally:
            if not complete:
                reply.abort()

    def _take(self, end: ReplyEnd) -> bool:
        self.refused, self.failure, self.drained = end.refused, end.failure, end.drained
        return end.complete

    async def _watch(self, reply: RelayReply, scope: anyio.CancelScope) -> None:
        """Cancel the request once the agent has disconnected."""
        while not reply.is_gone:  # noqa: ASYNC110 - a socket reports no client that hangs up
            await anyio.sleep(_POLL_S)
        scope.cancel()

    def close(self) -> None:
        for scope in self._open:
            scope.cancel()


@dataclass(slots=True)
class AnswerReader:
    """Implements `RelayReply` for an API worker's request. Its clock is paused until the answer starts."""

    clock: Clock = None
    status: int = 0
    is_gone: bool = False
    body: bytearray = field(default_factory=bytearray)
    """The body of an answer that is not streamed."""
    _left_s: float = 0.0
    _exchange: Exchange = field(default_factory=lambda: Exchange(_NO_LIMITS, lambda _: None, str))
    _started: float = field(default_factory=anyio.current_time)
    _waited_s: float = 0.0

    def __enter__(self) -> None:
        if self.clock is not None:
            self._left_s, self.clock.deadline = self.clock.deadline - self._started, math.inf

    def __exit__(self, *_: object) -> None:
        if not self.status:
            self._go_on(self._seconds)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self._exchange.headers = status, headers
        self._go_on(float(headers.get(WAITED, self._seconds)))

    def _go_on(self, waited_s: float) -> None:
        """Resume the clock after a pause of `waited_s`."""
        self._waited_s = waited_s
        if self.clock is not None:
            self.clock.deadline = self._started + waited_s + self._left_s

    async def write(self, chunk: bytes) -> None:
        if self._is_document:
            self.body += chunk
        else:
            self._exchange.feed(chunk)

    async def finish(self) -> None:
        """The result is read from the received parts."""

    def abort(self) -> None:
        """The result is read from the received parts."""

    @property
    def _is_document(self) -> bool:
        return self._exchange.headers.get("content-type", "").startswith("application/json")

    @property
    def _seconds(self) -> float:
        return anyio.current_time() - self._started

    def result(self) -> Answer | CallFault | None:
        """Return the answer; None if the service was not reached or rejected the request."""
        if self.status != _OK:
            return None
        if self._is_document:
            self._exchange.feed_document(self.body)
        return replace(self._exchange.result(), seconds=self._seconds - self._waited_s)


@dataclass(slots=True)
class RelayedCalls:
    """Implements `Calls` over HTTP, like an agent in a sandbox. The manager waits, counts and pays."""

    relay: LineRelay
    policy: RetryPolicy
    times: Lifetimes = LIFETIMES
    chance: Random = field(default_factory=SystemRandom)
    _notes: dict[str, ModelNotes] = field(default_factory=dict)

    def available(self, model: str) -> str:
        return self._notes[model].id if model in self._notes else model

    def touches(self, model: str) -> int:
        return self._notes[model].touches if model in self._notes else 0

    async def limits(self, model: str) -> ModelLimits:
        return (self._notes.get(model) or await self._read_notes(model)).limits

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """Request an answer. If it breaks off, it is requested again here, because its start was already received."""
        del meter, transcript
        broken = 0
        while True:
            notes = self._notes.get(request.model) or await self._read_notes(request.model)
            reader = AnswerReader(clock)
            with reader:
                await self.relay.forward(self._request(request, notes), reader)
            result = reader.result()
            if isinstance(result, Answer):
                return result
            failure = self._failure()
            if result is not None:
                broken += 1
                if failure.kind != "transient" or broken >= self.policy.retries:
                    return failure
                await anyio.sleep(backoff_s(broken, self.policy, self.chance))
                continue
            if failure.status not in _TELLING or (news := await self._read_notes(request.model)) == notes:
                return failure
            if news.id != request.model and turn > 1:
                return gone_meanwhile(request.model, news.id)
            request = replace(request, model=news.id)

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        del meter, transcript, turn
        notes = self._notes.get(request.model) or await self._read_notes(request.model)
        request = replace(request, messages=request.messages[:-1], max_tokens=0, length=None)
        reader = AnswerReader()
        await self.relay.forward(self._request(request, notes), reader)
        if isinstance(reader.result(), Answer):
            return True
        self._failure()
        await self._read_notes(request.model)  # the service may reject a request without an answer
        return False

    def _request(self, request: Request, notes: ModelNotes) -> RelayRequest:
        body = parameters_of(request, notes.without)
        if request.max_tokens and "streaming" not in notes.without:
            body["stream"] = True
        self.relay.refused = self.relay.failure = None
        return RelayRequest("POST", CALL, HEADERS, json.dumps(body).encode())

    def _failure(self) -> Failure:
        """Return why the last request had no answer. Raises `DrainingError` if it would have had to wait."""
        relay = self.relay
        if (failure := relay.refused or relay.failure) is not None:
            return failure
        if relay.drained:
            raise DrainingError
        raise EffectError(Failure(kind="infrastructure", summary=_CUT_OFF))

    async def _read_notes(self, model: str) -> ModelNotes:
        """Return the manager's current notes about a model."""
        reader = AnswerReader()
        await self.relay.forward(RelayRequest("GET", MODELS + model, {}, b""), reader)
        try:
            self._notes[model] = notes = load(ModelNotes, bytes(reader.body))
        except ValueError as error:
            raise EffectError(Failure(kind="infrastructure", summary=_CUT_OFF, evidence=str(error)[:300])) from error
        return notes
