"""The manager's end: makes the calls of an attempt on a node, as those of attempts made here, and pays for them.

The node may ask only for what its order allows: its model, its effort, answers of the usual length, so many turns. It
sends no header of its own, and sees neither a key nor a price.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.conversation.guards import AttemptBudget
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.answer import Answer, Request, ToolCall
from agents.models.calls import Caller, Clock, paused
from agents.models.prices import LIFETIMES, Lifetimes, ModelLimits
from agents.models.transcripts import Transcript
from agents.workers.registry import WorkerContext
from agents.workers.relay import AgentGoneError, AgentRelay, RelayReply, RelayRequest
from fleet.core.base.output import parse_json
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Failure
from fleet.ports.agents import AttemptCalls, CallRefusedError, DrainingError, Meter, Reply
from fleet.ports.orders import AttemptOrder, OpenCalls
from fleet.ports.worktrees import EffectError

# ---- messages --------------------------------------------------------------------------------------------------------
# What an attempt on a node asks its manager for, and what it gets: JSON, parsed at the border on both ends.
#
# The manager believes nothing of a request: it has this shape, or the node is not used any more. What is the same in
# each request of a conversation comes first, because it does not travel twice.


LONGEST_SYSTEM = 4_000_000
MOST_MESSAGES = 20_000
MOST_BLOCKS = 20_000
MOST_TOOLS = 64
BODY = b"="
"""What a part begins with that is none of these documents, but of the body of an answer."""

Model = Annotated[str, Field(min_length=1, max_length=200)]
Parsed = TypeVar("Parsed", bound=BaseModel)


class CallLine(Protocol):
    """The way from an attempt on a node to its manager, which makes the calls."""

    def call(self, request: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Ask for a call; inside the block, the parts of its answer. Whoever leaves early does not want the rest."""
        ...


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Message(_Document):
    role: Literal["user", "assistant"]
    content: Annotated[list[Any], Field(min_length=1, max_length=MOST_BLOCKS)]

    @model_validator(mode="after")
    def _has_blocks(self) -> "_Message":
        if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in self.content):
            raise ValueError("the content of a message is not made of blocks")
        return self


class Ask(_Document):
    """The next answer of a conversation; or, with `warm`, only that its prompt stays in the cache."""

    model: Model
    effort: Annotated[str, Field(max_length=40)] | None
    max_tokens: Annotated[int, Field(gt=0, le=1_000_000)]
    system: Annotated[str, Field(max_length=LONGEST_SYSTEM)]
    tools: Annotated[list[dict[str, Any]], Field(max_length=MOST_TOOLS)]
    shared: Annotated[int, Field(ge=0)]
    messages: Annotated[list[_Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    previous: Annotated[str, Field(max_length=200)] | None
    turn: Annotated[int, Field(ge=1, le=100_000)]
    left_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """How long the conversation may still take."""
    warm: bool

    @model_validator(mode="after")
    def _shares_blocks(self) -> "Ask":
        if self.shared > len(self.messages[0].content) or self.messages[0].role != "user":
            raise ValueError("a conversation that can't begin like this")
        return self

    @property
    def request(self) -> Request:
        messages = tuple(message.model_dump() for message in self.messages)
        return Request(
            self.model,
            self.max_tokens,
            self.system,
            tuple(self.tools),
            messages,
            self.shared,
            effort=self.effort,
            previous=self.previous,
        )


class AskLimits(_Document):
    """What a model accepts."""

    limits_of: Model


class AskRelay(_Document):
    """A request of an agent in the box, which speaks HTTP."""

    method: Annotated[str, Field(max_length=20)]
    target: Annotated[str, Field(max_length=2_000)]
    headers: Annotated[dict[str, str], Field(max_length=16)]
    body: str


class Outcome(_Document):
    """The answer to `Ask`: one of these, and how long the conversation may still take."""

    answer: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    draining: bool = False
    kept: bool = False
    """The prompt is still in the cache."""
    left_s: float | None = None
    """None: its time is over."""
    model: str = ""
    """The model that the conversation continues with."""


class Limits(_Document):
    """The answer to `AskLimits`."""

    limits: ModelLimits
    touches: int
    model: str
    """The model to begin with instead."""


class RelayHead(_Document):
    """How the answer to `AskRelay` begins. Its body follows, and then `RelayEnd`."""

    status: int
    headers: dict[str, str]


class RelayEnd(_Document):
    """What the relay knows by now of how the session went."""

    complete: bool
    refused: dict[str, Any] | None
    failure: dict[str, Any] | None
    drained: bool


def dump_request(request: Request, *, turn: int, left_s: float, warm: bool) -> bytes:
    """A request as `Ask`. What changes from turn to turn is behind what only grows."""
    return _json(
        {
            "model": request.model,
            "effort": request.effort,
            "max_tokens": max(1, request.max_tokens),
            "system": request.system,
            "tools": request.tools,
            "shared": request.shared,
            "messages": request.messages,
            "previous": request.previous,
            "turn": turn,
            "left_s": left_s,
            "warm": warm,
        }
    )


def load_asked(data: bytes) -> Ask | AskLimits | AskRelay:
    """What a node asks for. Raises `CallRefusedError`."""
    try:
        document = parse_json(data)
        if not isinstance(document, dict):
            raise CallRefusedError("its request is not an object")
        kind: type[Ask | AskLimits | AskRelay] = Ask
        if "limits_of" in document or "method" in document:
            kind = AskLimits if "limits_of" in document else AskRelay
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "request"
        raise CallRefusedError(f"its request has another shape: {where}: {first['msg']}"[:300]) from None
    except ValueError:
        raise CallRefusedError("its request is not JSON") from None


def load(kind: type[Parsed], data: bytes) -> Parsed:
    """What a manager answers. Raises `ValueError`."""
    return kind.model_validate(parse_json(data))


def dump(document: BaseModel) -> bytes:
    return _json(document.model_dump())


def dump_answer(answer: Answer) -> dict[str, Any]:
    calls = [{"id": each.id, "name": each.name, "input": each.input, "problem": each.problem} for each in answer.calls]
    return {
        "blocks": answer.blocks,
        "stop_reason": answer.stop_reason,
        "usage": answer.usage.model_dump(),
        "model": answer.model,
        "request_id": answer.request_id,
        "seconds": answer.seconds,
        "calls": calls,
        "id": answer.id,
        "cache_miss": answer.cache_miss,
    }


def load_answer(document: Mapping[str, Any]) -> Answer:
    """Raises `ValueError`, `TypeError` or `KeyError`."""
    return Answer(
        **{
            **document,
            "blocks": tuple(document["blocks"]),
            "usage": Usage.model_validate(document["usage"]),
            "calls": tuple(ToolCall(**call) for call in document["calls"]),
        }
    )


def dump_failure(failure: Failure) -> dict[str, Any]:
    return failure.model_dump(mode="json")


def _json(document: object) -> bytes:
    """In plain characters: text of a model may hold half of one, which has no other form."""
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode()


# ---- attempt calls ---------------------------------------------------------------------------------------------------


MOST_LIMITS = 16  # how often the limits of its model may be asked for
_TOOL_TYPES = frozenset({"", "custom", "bash_20250124", "text_editor_20250728"})
"""What the service itself would run costs money, and is no tool of a worker."""


@dataclass(slots=True)
class ConversationCalls:
    """Satisfies `AttemptCalls` for a conversation of ours."""

    model: str
    effort: str | None
    settings: WorkerSettings
    common: AgentSettings
    caller: Caller
    budget: AttemptBudget
    transcript: Transcript
    drained: bool = False
    _asked: int = 0
    _warmed: int = 0
    _limits: int = 0
    _kept: int = 0

    async def answer(self, request: bytes, reply: Reply) -> None:
        match load_asked(request):
            case AskLimits(limits_of=model):
                await reply.send(dump(await self._limits_of(model)))
            case Ask() as asked:
                self._check(asked)
                await reply.send(dump(await self._unless_dropped(asked, reply)))
            case AskRelay():
                raise CallRefusedError("it asks for a relay; its order is a conversation")

    def keep(self, transcript: bytes) -> None:
        self._kept += len(transcript)
        if self._kept <= LONGEST_TRANSCRIPT:
            self.transcript.append(transcript)

    def close(self) -> None:
        """A call under way is cancelled with its task."""

    async def _limits_of(self, model: str) -> Limits:
        self._limits += 1
        if model not in self._models or self._limits > MOST_LIMITS:
            raise CallRefusedError(f"it asks for the limits of {model!r}, {self._limits} times")
        instead = self.caller.available(model)
        limits = await self.caller.limits(instead)
        return Limits(limits=limits, touches=self.caller.touches(instead), model=instead)

    @property
    def _models(self) -> set[str]:
        return {self.model, self.caller.available(self.model)}

    def _check(self, asked: Ask) -> None:
        """Raises `CallRefusedError` for what an honest node never asks for."""
        if asked.model not in self._models:
            raise CallRefusedError(f"it asks for the model {asked.model!r}; its order has {self.model!r}")
        if asked.effort != self.effort:
            raise CallRefusedError(f"it asks for the effort {asked.effort!r}; its order has {self.effort!r}")
        if asked.max_tokens > self.common.models.max_tokens:
            raise CallRefusedError(f"it asks for an answer of {asked.max_tokens} tokens")
        if any(tool.get("type", "") not in _TOOL_TYPES for tool in asked.tools):
            raise CallRefusedError("it asks for a tool that the service runs")
        self._asked += not asked.warm
        self._warmed += asked.warm
        turns = self.settings.turns
        if self._asked > turns or self._warmed > turns * self.caller.touches(asked.model):
            raise CallRefusedError(f"it asks more often than in {turns} turns")

    async def _unless_dropped(self, asked: Ask, reply: Reply) -> Outcome:
        """What became of a call; it is cut short when the node does not want it any more, and charged."""
        outcome = Outcome()
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await reply.wait_dropped()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                outcome = await self._outcome(asked)
            except DrainingError:
                self.drained, outcome = True, Outcome(draining=True)
            tasks.cancel_scope.cancel()
        return outcome

    async def _outcome(self, asked: Ask) -> Outcome:
        request = asked.request
        if asked.warm:
            kept = await self.caller.keep_warm(request, self.budget, self.transcript, turn=asked.turn)
            return Outcome(kept=kept)
        with anyio.move_on_after(min(asked.left_s, self.settings.time_s)) as clock:
            result = await self.caller.call(request, self.budget, self.transcript, turn=asked.turn, clock=clock)
            left_s = max(0.0, clock.deadline - anyio.current_time())
            model = self.caller.available(asked.model)
            if isinstance(result, Answer):
                return Outcome(answer=dump_answer(result), left_s=left_s, model=model)
            return Outcome(failure=dump_failure(result), left_s=left_s, model=model)
        return Outcome()


class NoCalls:
    """Satisfies `AttemptCalls` for a worker that calls no model through us."""

    drained = False

    async def answer(self, request: bytes, reply: Reply) -> None:
        del request, reply
        raise CallRefusedError("it asks for a call to a model; its order is a program")

    def keep(self, transcript: bytes) -> None:
        del transcript

    def close(self) -> None:
        pass


@contextmanager
def no_calls(order: AttemptOrder, meter: Meter) -> Iterator[AttemptCalls]:
    """For agents without models."""
    del order, meter
    yield NoCalls()


def calls_of(context: WorkerContext, caller: Caller) -> OpenCalls:
    """Opens the calls of attempts that are made on nodes."""

    @contextmanager
    def opened(order: AttemptOrder, meter: Meter) -> Iterator[AttemptCalls]:
        settings, brief = context.settings.workers[order.worker], order.brief
        if not settings.calls_models:
            yield NoCalls()
            return
        usual = next(iter(settings.choices), context.settings.models.worker)
        model = brief.model or usual
        budget = AttemptBudget(meter, settings.tokens, settings.dollars)
        with context.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            if settings.kind in {"claude-code", "acp"}:
                yield RelayCalls(context.open_relay(budget, transcript, model, settings.turns), transcript)
                return
            yield ConversationCalls(model, brief.effort, settings, context.settings, caller, budget, transcript)

    return opened


# ---- relay calls -----------------------------------------------------------------------------------------------------
# The manager's end of a relay: the requests of an agent on a node, at the relay that agents here have, too.


LONGEST_TRANSCRIPT = 64 * 1024 * 1024


@dataclass(slots=True)
class LineReply:
    """Satisfies `RelayReply` with the answer to a call of a node."""

    reply: Reply
    complete: bool = False

    @property
    def is_gone(self) -> bool:
        return self.reply.is_dropped

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self.reply.send(dump(RelayHead(status=status, headers=dict(headers))))

    async def write(self, chunk: bytes) -> None:
        if self.is_gone:
            raise AgentGoneError
        await self.reply.send(BODY + chunk)

    async def finish(self) -> None:
        self.complete = True

    def abort(self) -> None:
        self.complete = False


@dataclass(slots=True)
class RelayCalls:
    """Satisfies `AttemptCalls` for an agent that speaks HTTP."""

    relay: AgentRelay
    transcript: Transcript
    _kept: int = 0

    @property
    def drained(self) -> bool:
        return self.relay.drained

    async def answer(self, request: bytes, reply: Reply) -> None:
        asked = load_asked(request)
        if not isinstance(asked, AskRelay):
            raise CallRefusedError("it asks for a call of a conversation; its order is an agent")
        way_back = LineReply(reply)
        body = asked.body.encode("utf-8", "replace")
        try:
            await self.relay.handle(RelayRequest(asked.method, asked.target, asked.headers, body), way_back)
        except AgentGoneError:
            return
        relay = self.relay
        end = RelayEnd(
            complete=way_back.complete,
            refused=dump_failure(relay.refused) if relay.refused is not None else None,
            failure=dump_failure(relay.failure) if relay.failure is not None else None,
            drained=relay.drained,
        )
        await reply.send(dump(end))

    def keep(self, transcript: bytes) -> None:
        self._kept += len(transcript)
        if self._kept <= LONGEST_TRANSCRIPT:
            self.transcript.append(transcript)

    def close(self) -> None:
        self.relay.close()


# ---- line calls ------------------------------------------------------------------------------------------------------
# The node's end: the calls of one attempt, asked for on its line. Nothing here knows a key, a price or a service.


_NO_END_S = 86_400.0


@dataclass(slots=True)
class LineCalls:
    """Satisfies `Calls`. The manager retries, waits, counts and pays, with a meter of its own."""

    line: CallLine
    times: Lifetimes = LIFETIMES
    _known: dict[str, Limits] = field(default_factory=dict)
    _instead: dict[str, str] = field(default_factory=dict)
    """The model that the manager called instead of one that is gone."""

    def available(self, model: str) -> str:
        return self._instead.get(model, model)

    def touches(self, model: str) -> int:
        return self._known[model].touches if model in self._known else 0

    async def limits(self, model: str) -> ModelLimits:
        if model not in self._known:
            limits = _read(Limits, await self._ask(dump(AskLimits(limits_of=model))))
            self._known[model] = self._known[limits.model] = limits
            self._instead[model] = limits.model
        return self._known[model].limits

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """The manager's clock runs for the conversation meanwhile: it stands still while a call waits its turn."""
        del meter, transcript
        outcome = await self._outcome(request, turn=turn, clock=clock, warm=False)
        if clock is not None and outcome.left_s is None:
            clock.cancel()
            await anyio.lowlevel.checkpoint()
        if clock is not None and outcome.left_s is not None:
            clock.deadline = anyio.current_time() + outcome.left_s
        self._instead[request.model] = outcome.model or request.model
        try:
            if outcome.answer is not None:
                return load_answer(outcome.answer)
            return Failure.model_validate(outcome.failure)
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable() from error

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        del meter, transcript
        return (await self._outcome(request, turn=turn, clock=None, warm=True)).kept

    async def _outcome(self, request: Request, *, turn: int, clock: Clock, warm: bool) -> Outcome:
        left_s = min(clock.deadline - anyio.current_time(), _NO_END_S) if clock is not None else _NO_END_S
        asked = dump_request(request, turn=turn, left_s=max(0.0, left_s), warm=warm)
        with paused(clock):
            outcome = _read(Outcome, await self._ask(asked))
        if outcome.draining:
            raise DrainingError
        return outcome

    async def _ask(self, asked: bytes) -> Sequence[bytes]:
        async with self.line.call(asked) as parts:
            return [part async for part in parts]


def _read(kind: type[Parsed], parts: Sequence[bytes]) -> Parsed:
    try:
        return load(kind, b"".join(parts))
    except ValueError as error:
        raise _unreadable() from error


def _unreadable() -> EffectError:
    summary = "the manager's answer to a call can't be read"
    return EffectError(Failure(kind="infrastructure", summary=summary))


# ---- line relay ------------------------------------------------------------------------------------------------------
# The node's end of a relay: what an agent in the box asks goes to the relay of the manager, and its answer back.


_POLL_S = 0.2  # how often we check whether an agent is still connected
_CUT_OFF = "the manager's relay did not answer"


@dataclass(slots=True)
class LineRelay:
    """Satisfies `AgentRelay`. Whether a request is allowed, and what it costs, is known to the manager alone."""

    line: CallLine
    refused: Failure | None = None
    failure: Failure | None = None
    drained: bool = False
    _open: set[anyio.CancelScope] = field(default_factory=set)

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        body = request.body.decode("utf-8", "replace")
        asked = AskRelay(method=request.method, target=request.target, headers=dict(request.headers), body=body)
        async with anyio.create_task_group() as tasks:
            self._open.add(tasks.cancel_scope)
            try:
                tasks.start_soon(self._watch, reply, tasks.cancel_scope)
                await self._forward(dump(asked), reply)
            except AgentGoneError:
                reply.abort()
            finally:
                self._open.discard(tasks.cancel_scope)
            tasks.cancel_scope.cancel()

    async def _forward(self, asked: bytes, reply: RelayReply) -> None:
        complete = False
        try:
            async with self.line.call(asked) as parts:
                begun = False
                async for part in parts:
                    if not part:
                        continue
                    if part.startswith(BODY):
                        await reply.write(part.removeprefix(BODY))
                    elif not begun:
                        head, begun = load(RelayHead, part), True
                        await reply.begin(head.status, head.headers)
                    else:
                        complete = self._take(load(RelayEnd, part))
            if complete:
                await reply.finish()
        except ValueError as error:
            self.failure = Failure(kind="infrastructure", summary=_CUT_OFF, evidence=str(error)[:300])
        finally:
            if not complete:
                reply.abort()

    def _take(self, end: RelayEnd) -> bool:
        self.refused = Failure.model_validate(end.refused) if end.refused is not None else None
        self.failure = Failure.model_validate(end.failure) if end.failure is not None else None
        self.drained = end.drained
        return end.complete

    async def _watch(self, reply: RelayReply, scope: anyio.CancelScope) -> None:
        """Say that the answer is not wanted any more once the agent has hung up."""
        while not reply.is_gone:  # noqa: ASYNC110 - a socket reports no client that hangs up
            await anyio.sleep(_POLL_S)
        scope.cancel()

    def close(self) -> None:
        for scope in self._open:
            scope.cancel()
