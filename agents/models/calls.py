"""Makes every call to a model: waits for a permit, reserves its cost, retries it and reports what it used.

Knows faults by their kind only; the wire is the model client's.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Protocol

import anyio

from agents.models.answer import (
    Answer,
    CallFault,
    FaultKind,
    Lacks,
    Model,
    OnBegin,
    Request,
    estimated_tokens,
    lacks_nothing,
)
from agents.models.exchange import one_line
from agents.models.prices import (
    LIFETIMES,
    AnswerLengths,
    Lifetimes,
    ModelLimits,
    Price,
    cache_rates,
    dollars,
    limits_of,
    touches_that_pay,
)
from agents.models.service import CONDITIONS, LAST_WAIT_S, SLICE_S, Permit, RetryPolicy, Service
from agents.models.transcripts import Transcript
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts.facts import Failure, FailureKind
from fleet.ports.agents import DrainingError, Meter, ModelUse

_KINDS: dict[FaultKind, FailureKind] = {
    "limit": "transient",
    "outage": "transient",
    "broken": "transient",
    "refused": "configuration",
    "gone": "configuration",
    "configuration": "configuration",
    "conversation": "protocol",  # its own messages: another attempt begins with others
    "too_long": "too_complex",  # what no longer fits into one conversation should be split
    "other": "other",
}
_SAID = 300  # characters of what a model says that the journal keeps
_RETRIED: frozenset[FaultKind] = frozenset({"limit", "outage", "broken"})

WARMING = "keeps its prompt in the cache"
Clock = anyio.CancelScope | None
"""The time limit of a conversation."""


@dataclass(frozen=True, slots=True)
class PaidCall:
    """A call as the caller sees it. `send` may be called again for each retry."""

    model: str
    maximum: Usage
    """What it may use."""
    send: Callable[[OnBegin, int], Awaitable[Answer | CallFault]]
    """Sends it, with the tokens that its answer may take."""
    doing: str | None = None
    """What it is for, if its answer does not say."""
    may_retry: Callable[[], bool] = lambda: True
    """False once a part of the answer has been passed on."""


@dataclass(slots=True)
class Caller:
    """Makes calls, and retries them."""

    model: Model
    policy: RetryPolicy
    prices: Mapping[str, Price]
    chance: Random
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    tell_limits: Callable[[str], Awaitable[ModelLimits | None]] | None = None
    """Asks the service for the limits of a model."""
    lacks: Lacks = lacks_nothing
    take_warnings: Callable[[], list[str]] = list
    """What the client has to say to a person since it was last asked."""
    service: Service = field(init=False)
    times: Lifetimes = LIFETIMES
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    _limits: dict[str, ModelLimits] = field(default_factory=dict)
    _asking: anyio.Lock = field(default_factory=anyio.Lock)
    _unavailable: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.service = Service(self.policy, self.chance)

    def available(self, model: str) -> str:
        """The model to begin a conversation with: `model`, or its fallback if the service no longer has it."""
        seen: set[str] = set()
        while model in self._unavailable and model in self.fallbacks and model not in seen:
            seen.add(model)
            model = self.fallbacks[model]
        return model

    def line_of(self, model: str) -> tuple[str, ...]:
        """A model and, one after the other, those to use instead."""
        line = [model]
        while (other := self.fallbacks.get(line[-1])) is not None and other not in line:
            line.append(other)
        return tuple(line)

    async def limits(self, model: str) -> ModelLimits:
        """The limits of a model: as the service reports them, asked once, or from the table."""
        if self.tell_limits is None:
            return limits_of(model)
        async with self._asking:
            if model not in self._limits:
                self._limits[model] = await self.tell_limits(model) or limits_of(model)
        return self._limits[model]

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """One answer, from the requested model or its fallback. See `make`."""
        while True:
            most = Usage(cache_write=estimated_tokens(request), output=request.max_tokens)
            call = PaidCall(request.model, most, partial(self._ask, request))
            result = await self.make(call, meter, transcript, turn=turn, clock=clock)
            if not isinstance(result, CallFault):
                return result
            if turn > 1 and result.kind == "configuration":  # it was accepted before: only the messages are new
                result = replace(result, kind="conversation")
            if result.kind != "gone":
                return as_failure(result, request.model)
            self.lost(request.model)
            other = self.available(request.model)
            if other == request.model:
                return as_failure(result, request.model)
            if turn > 1:
                return gone_meanwhile(request.model, other)
            request = replace(request, model=other)

    def lost(self, model: str) -> None:
        """The service does not have a model any more."""
        self._unavailable.add(model)

    def touches(self, model: str) -> int:
        """How often the prompt of a conversation may be read, only to keep it in the cache."""
        if self.lacks(model, "keep_alive") or self.lacks(model, "cache"):
            return 0
        return touches_that_pay(cache_rates(model, self.prices))

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        """Read the prompt from the cache, so that it is kept for longer. Whether that was possible.

        The prompt may end in an answer whose calls have no results yet: the request is the last one again.
        """
        request = replace(request, messages=request.messages[:-1], length=None)
        most = Usage(cache_write=estimated_tokens(request))
        call = PaidCall(request.model, most, partial(self._ask, request), doing=WARMING)
        return isinstance(await self.make(call, meter, transcript, turn=turn), Answer)

    def _ask(self, request: Request, on_begin: OnBegin, max_tokens: int) -> Awaitable[Answer | CallFault]:
        return self.model.ask(replace(request, max_tokens=max_tokens), on_begin)

    async def make(
        self, call: PaidCall, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | CallFault | Failure:
        """One answer, after as many tries as the policy allows. Waiting for a permit does not count on `clock`.

        A fault comes from the service; a failure means that no call may be made. Raises `DrainingError` if the call
        would have to wait and the run is draining.
        """
        tries = 0
        while True:
            with paused(clock):
                permit = await self.service.acquire(call.model, meter)
            await self._announce(meter)
            granted = await self._reserve(call, meter, permit)
            if isinstance(granted, Failure):
                return granted
            if permit is None:
                meter.release()
                return Failure(kind="spent", summary="the budget allows no further call to a model")
            try:
                result = await call.send(partial(self.service.begun, permit), granted)
            except BaseException:  # interrupted: what was generated so far is charged
                self.service.cancelled(permit)
                meter.release(lost=True)
                raise
            if isinstance(result, Answer):
                self.service.answered(permit, result)
                await self._announce(meter)
                await meter.used(self._use(call, result, turn, call.doing or describe_calls(result)))
                if call.maximum.output:
                    self.lengths.saw(call.model, result.usage.output)
                return result
            concerns_all = self.service.failed(permit, result)
            await self._record_fault(call, result, meter, transcript, turn)
            if not call.may_retry():
                return result
            if concerns_all and CONDITIONS[result.kind] in meter.service.rules().waits_for:
                continue
            tries += 1
            if result.kind not in _RETRIED or tries >= self.policy.retries:
                return result
            await _sleep(backoff_s(tries, self.policy, self.chance), meter)

    async def _reserve(self, call: PaidCall, meter: Meter, permit: Permit | None) -> int | Failure:
        """Reserve what the call may cost: the tokens that its answer may take.

        That is what answers usually take at least, and all it asks for if the budget has room for it. Without a
        reservation the permit is given back.
        """
        most = call.maximum
        usual = most.model_copy(update={"output": self.lengths.usual(call.model, most.output)})
        reserved = False
        try:
            refused = await meter.reserve(call.model, self._cost(call.model, usual))
            if refused is not None:
                return refused
            share = await meter.widen(self._cost(call.model, most)) if most.output > usual.output else 1.0
            reserved = True
        finally:
            if permit is not None and not reserved:
                self.service.cancelled(permit)
        return usual.output + int(share * (most.output - usual.output))

    def _cost(self, model: str, usage: Usage) -> Cost:
        return Cost(calls=1, tokens=usage.total, dollars=dollars(model, usage, self.prices))

    async def _record_fault(
        self, call: PaidCall, fault: CallFault, meter: Meter, transcript: Transcript, turn: int
    ) -> None:
        transcript.write("fault", kind=fault.kind, message=fault.message, request_id=fault.request_id, turn=turn)
        await self._announce(meter)
        if fault.usage is not None:
            await meter.used(self._use(call, fault, turn, "an answer that broke off"))
        else:
            meter.release()

    async def _announce(self, meter: Meter) -> None:
        for notice in self.service.take_notices():
            await meter.service.report(notice)
        for text in self.take_warnings():
            await meter.service.warn(text)

    def _use(self, call: PaidCall, result: Answer | CallFault, turn: int, doing: str) -> ModelUse:
        model = (result.model if isinstance(result, Answer) else "") or call.model
        usage = result.usage or Usage()
        cost = dollars(model, usage, self.prices)
        said = one_line(result.said)[:_SAID] if isinstance(result, Answer) else ""
        return ModelUse(model, usage, cost, result.seconds, turn, doing, said)


def as_failure(fault: CallFault, model: str) -> Failure:
    """What a call without an answer means for the attempt or the planner call that made it."""
    evidence = f"model {model}" + (f", request {fault.request_id}" if fault.request_id else "")
    return Failure(kind=_KINDS[fault.kind], summary=fault.message, evidence=evidence, status=fault.status)


def gone_meanwhile(model: str, other: str) -> Failure:
    """A conversation keeps the model it began with."""
    summary = f"the model {model} is gone; the next attempt begins with {other}"
    return Failure(kind="transient", summary=summary, status=404)


def backoff_s(failures: int, policy: RetryPolicy, chance: Random) -> float:
    """Full jitter: anything up to the bound, so that calls that failed together don't return together."""
    bound = min(policy.backoff_cap_s, policy.backoff_first_s * 2.0 ** min(failures - 1, 32))
    return chance.uniform(0, bound)


async def _sleep(seconds: float, meter: Meter) -> None:
    """Wait before the next try. Raises `DrainingError` if the run is draining and the wait is long."""
    until = anyio.current_time() + seconds
    while (remaining := until - anyio.current_time()) > 0:
        if remaining > LAST_WAIT_S and meter.service.rules().draining:
            raise DrainingError
        await anyio.sleep(min(remaining, SLICE_S))


@contextmanager
def paused(clock: Clock) -> Iterator[None]:
    """The time inside does not count on `clock`."""
    if clock is None:
        yield
        return
    remaining = clock.deadline - anyio.current_time()
    clock.deadline = math.inf
    try:
        yield
    finally:
        clock.deadline = anyio.current_time() + remaining


_SUBJECTS = ("path", "command", "pattern", "text")
_SHOWN = 60  # characters of a call's subject


def describe_calls(answer: Answer) -> str:
    """The tool calls of an answer in a few words: `bash pytest -q tests, report`."""
    calls = [f"{call.name} {_subject(call.input)}".rstrip() for call in answer.calls]
    return ", ".join(calls[:4]) + (", …" if len(calls) > 4 else "") or "text"  # noqa: PLR2004 - a line's worth


def _subject(arguments: Mapping[str, object]) -> str:
    """The path a call names, else its command: the editor's `command` is only a verb."""
    texts = (str(arguments[name]) for name in _SUBJECTS if isinstance(arguments.get(name), str))
    return " ".join(next(texts, "").split())[:_SHOWN]


# ---- callers ---------------------------------------------------------------------------------------------------------
# What a conversation needs of those who make its calls, whether they are in this process or not.


class Calls(Protocol):
    """Makes the calls of conversations. `Caller` makes them itself."""

    times: Lifetimes

    def available(self, model: str) -> str:
        """The model to begin a conversation with: `model`, or its fallback if the service no longer has it."""
        ...

    async def limits(self, model: str) -> ModelLimits: ...

    def touches(self, model: str) -> int:
        """How often the prompt of a conversation may be read, only to keep it in the cache."""
        ...

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """One answer. Raises `DrainingError` if the call would have to wait and the run is draining."""
        ...

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        """Read the prompt from the cache, so that it is kept for longer. Whether that was possible."""
        ...
