"""Makes all model calls: waits for a permit, reserves the cost, retries, and reports the usage.

It only distinguishes kinds of faults. The model client handles the wire format.
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
    "conversation": "protocol",  # caused by its messages: another attempt starts with different ones
    "too_long": "too_complex",  # a subtask that does not fit into one conversation should be split
    "other": "other",
}
_SAID = 300  # characters of a model's text in the journal
_RETRIED: frozenset[FaultKind] = frozenset({"limit", "outage", "broken"})

WARMING = "keeps its prompt in the cache"
Clock = anyio.CancelScope | None
"""The time limit of a conversation."""


@dataclass(frozen=True, slots=True)
class PaidCall:
    """A call to make. `send` is called again for each retry."""

    model: str
    maximum: Usage
    """The maximum usage."""
    send: Callable[[OnBegin, int], Awaitable[Answer | CallFault]]
    """Sends the call, with the maximum number of tokens of the answer."""
    doing: str | None = None
    """A description, if it can't be derived from the answer."""
    may_retry: Callable[[], bool] = lambda: True
    """Returns False once a part of the answer has been forwarded."""


@dataclass(slots=True)
class Caller:
    """Makes calls and retries them."""

    model: Model
    policy: RetryPolicy
    prices: Mapping[str, Price]
    chance: Random
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    tell_limits: Callable[[str], Awaitable[ModelLimits | None]] | None = None
    """Requests the limits of a model from the service."""
    lacks: Lacks = lacks_nothing
    take_warnings: Callable[[], list[str]] = list
    """Returns the client's new warnings."""
    service: Service = field(init=False)
    times: Lifetimes = LIFETIMES
    lengths: AnswerLengths = field(default_factory=AnswerLengths)
    _limits: dict[str, ModelLimits] = field(default_factory=dict)
    _asking: anyio.Lock = field(default_factory=anyio.Lock)
    _unavailable: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.service = Service(self.policy, self.chance)

    def available(self, model: str) -> str:
        """Return the model for a new conversation: `model`, or its fallback if the service no longer has it."""
        seen: set[str] = set()
        while model in self._unavailable and model in self.fallbacks and model not in seen:
            seen.add(model)
            model = self.fallbacks[model]
        return model

    def line_of(self, model: str) -> tuple[str, ...]:
        """Return a model and its fallbacks, in order."""
        line = [model]
        while (other := self.fallbacks.get(line[-1])) is not None and other not in line:
            line.append(other)
        return tuple(line)

    async def limits(self, model: str) -> ModelLimits:
        """Return the limits of a model, as reported by the service (requested once) or from the table."""
        if self.tell_limits is None:
            return limits_of(model)
        async with self._asking:
            if model not in self._limits:
                self._limits[model] = await self.tell_limits(model) or limits_of(model)
        return self._limits[model]

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """Request an answer from the model or its fallback. See `make`."""
        while True:
            most = Usage(cache_write=estimated_tokens(request), output=request.max_tokens)
            call = PaidCall(request.model, most, partial(self._ask, request))
            result = await self.make(call, meter, transcript, turn=turn, clock=clock)
            if not isinstance(result, CallFault):
                return result
            if turn > 1 and result.kind == "configuration":  # earlier requests were accepted: only the messages are new
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
        """Record that the service no longer has a model."""
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
        """Make a call, with as many tries as the policy allows. Waiting for a permit does not count on `clock`.

        A fault comes from the service. A failure means that no call may be made. Raises `DrainingError` if the call
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
                return Failure(kind="spent", summary="the budget does not allow another model call")
            try:
                result = await call.send(partial(self.service.begun, permit), granted)
            except BaseException:  # interrupted: tokens generated so far are billed
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
        """Reserve the cost of a call: the maximum number of tokens of its answer.

        That is at least the usual length of answers, and the full request if the budget allows it. Without a
        reservation, the permit is released.
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
            await meter.used(self._use(call, fault, turn, "an interrupted answer"))
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
    """Convert a fault to a failure of the attempt or planner call."""
    evidence = f"model {model}" + (f", request {fault.request_id}" if fault.request_id else "")
    return Failure(kind=_KINDS[fault.kind], summary=fault.message, evidence=evidence, status=fault.status)


def gone_meanwhile(model: str, other: str) -> Failure:
    """Return the failure of a conversation whose model disappeared, because a conversation can't change its model."""
    summary = f"the model {model} is no longer available, so the next attempt uses {other}"
    return Failure(kind="transient", summary=summary, status=404)


def backoff_s(failures: int, policy: RetryPolicy, chance: Random) -> float:
    """Return a wait with full jitter, so that calls that failed together are not retried together."""
    bound = min(policy.backoff_cap_s, policy.backoff_first_s * 2.0 ** min(failures - 1, 32))
    return chance.uniform(0, bound)


async def _sleep(seconds: float, meter: Meter) -> None:
    """Wait before a retry. Raises `DrainingError` if the run is draining and the wait is long."""
    until = anyio.current_time() + seconds
    while (remaining := until - anyio.current_time()) > 0:
        if remaining > LAST_WAIT_S and meter.service.rules().draining:
            raise DrainingError
        await anyio.sleep(min(remaining, SLICE_S))


@contextmanager
def paused(clock: Clock) -> Iterator[None]:
    """Pause `clock` during the block."""
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
    """Summarize the tool calls of an answer, such as `bash pytest -q tests, report`."""
    calls = [f"{call.name} {_subject(call.input)}".rstrip() for call in answer.calls]
    return ", ".join(calls[:4]) + (", …" if len(calls) > 4 else "") or "text"  # noqa: PLR2004 - a line's worth


def _subject(arguments: Mapping[str, object]) -> str:
    """Return the path of a call, or its command. The editor's `command` is only a verb."""
    texts = (str(arguments[name]) for name in _SUBJECTS if isinstance(arguments.get(name), str))
    return " ".join(next(texts, "").split())[:_SHOWN]


# ---- callers ---------------------------------------------------------------------------------------------------------
# The interface through which conversations make calls, in this process or another.


class Calls(Protocol):
    """Makes the calls of conversations. `Caller` makes them directly."""

    times: Lifetimes

    def available(self, model: str) -> str:
        """Return the model for a new conversation: `model`, or its fallback if the service no longer has it."""
        ...

    async def limits(self, model: str) -> ModelLimits: ...

    def touches(self, model: str) -> int:
        """How often the prompt of a conversation may be read, only to keep it in the cache."""
        ...

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """Request an answer. Raises `DrainingError` if the call would have to wait and the run is draining."""
        ...

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        """Read the prompt from the cache, so that it is kept for longer. Whether that was possible."""
        ...
