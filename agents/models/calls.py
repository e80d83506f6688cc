"""Every call to a model goes through here: when it may be made, how often it is tried, and who is told what it cost.

Knows faults by their kind only; what a wire looks like is the model client's.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

import anyio

from agents.models.answer import Answer, Begun, CallFault, FaultKind, Model, Request, estimated_tokens
from agents.models.door import Condition
from agents.models.pace import Ticket
from agents.models.prices import Price, dollars
from agents.models.service import LAST_WAIT_S, SLICE_S, Rhythm, Service
from agents.transcripts import Transcript
from fleet.core.facts import Failure, FailureKind
from fleet.core.usage import Cost, Usage
from fleet.ports import Drained, Meter, ModelUse

_KINDS: dict[FaultKind, FailureKind] = {
    "limit": "transient",
    "outage": "transient",
    "broken": "transient",
    "refused": "configuration",
    "gone": "configuration",
    "configuration": "configuration",
    "too_long": "too_complex",  # what no longer fits into one conversation wants to be smaller
    "other": "other",
}
_CONDITIONS: dict[FaultKind, Condition] = {"limit": "limited", "refused": "refused"}
_AGAIN: frozenset[FaultKind] = frozenset({"limit", "outage", "broken"})


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a call is tried again."""

    retries: int
    """Tries of one call, while others get through."""
    backoff_first_s: float
    backoff_cap_s: float
    retry_after_cap_s: float
    """A server may ask for a longer wait; we look again after this one."""
    pause_s: float
    """How long a limit holds that names no time."""


def backoff_s(failures: int, patience: Patience, chance: Random) -> float:
    """Full jitter: anything up to the bound, so that those who failed together don't return together."""
    bound = min(patience.backoff_cap_s, patience.backoff_first_s * 2.0 ** min(failures - 1, 32))
    return chance.uniform(0, bound)


@dataclass(frozen=True, slots=True)
class Errand:
    """A call as it is waited for, paid and counted. How it is made is for whoever asks."""

    model: str
    most: Usage
    """What it may use."""
    ask: Callable[[Begun], Awaitable[Answer | CallFault]]
    may_repeat: Callable[[], bool] = lambda: True
    """Whether it may be made again: not once a part of an answer has reached somebody."""


class Caller:
    """Makes calls, with patience."""

    def __init__(
        self,
        model: Model,
        patience: Patience,
        prices: Mapping[str, Price],
        *,
        chance: Random,
        fallbacks: Mapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._patience = patience
        self._prices = prices
        self._chance = chance
        self._fallbacks = fallbacks or {}
        self._gone: set[str] = set()
        self.service = Service(Rhythm(patience.retry_after_cap_s, patience.pause_s), chance)

    def stand_in(self, model: str) -> str:
        """The model to begin a conversation with: itself, or who was named to take the place of one that is gone."""
        seen: set[str] = set()
        while model in self._gone and model in self._fallbacks and model not in seen:
            seen.add(model)
            model = self._fallbacks[model]
        return model

    async def call(
        self,
        request: Request,
        meter: Meter,
        transcript: Transcript,
        *,
        turn: int,
        clock: anyio.CancelScope | None = None,
    ) -> Answer | Failure:
        """One answer, from the model that is asked for or who was named to take its place. As `place`."""
        while True:
            result = await self.place(self._errand(request), meter, transcript, turn=turn, clock=clock)
            if not isinstance(result, CallFault):
                return result
            if result.kind != "gone" or (other := self._instead_of(request.model)) == request.model:
                return as_failure(result, request.model)
            if turn > 1:  # a conversation stays with the model it began with
                return _begin_anew(request, other)
            request = replace(request, model=other)

    async def place(
        self,
        errand: Errand,
        meter: Meter,
        transcript: Transcript,
        *,
        turn: int,
        clock: anyio.CancelScope | None = None,
    ) -> Answer | CallFault | Failure:
        """One answer, after as many tries as it takes and is allowed. Waiting for its turn is not on `clock`.

        A fault is the service's, a failure says that no call may be made. Raises `Drained` where it would have to wait,
        and the run is drained.
        """
        tries = 0
        while True:
            with _stopped(clock):
                ticket = await self.service.turn(errand.model, meter)
            await self._tell(meter)
            if (refused := await self._reserve(errand, meter, ticket)) is not None:
                return refused
            if ticket is None:
                meter.release()
                return Failure(kind="spent", summary="the budget allows no further call to a model")
            result = await self._ask(errand, meter, ticket)
            if isinstance(result, Answer):
                await self._tell(meter)
                model, what = result.model or errand.model, doing(result)
                await meter.used(self._use(model, result.usage, seconds=result.seconds, turn=turn, doing=what))
                return result
            shared = self.service.failed(ticket, result)
            await self._note(errand, result, meter, transcript, turn=turn)
            if not errand.may_repeat():
                return result
            if shared and self._waits(meter, result):
                continue
            tries += 1
            if result.kind not in _AGAIN or tries >= self._patience.retries:
                return result
            await _rest(backoff_s(tries, self._patience, self._chance), meter)

    def _errand(self, request: Request) -> Errand:
        most = Usage(cache_write=estimated_tokens(request), output=request.max_tokens)
        return Errand(request.model, most, lambda begun: self._model.ask(replace(request, begun=begun)))

    async def _reserve(self, errand: Errand, meter: Meter, ticket: Ticket | None) -> Failure | None:
        """What the call may cost at most is set aside before it is made. Without it nobody's turn is used."""
        cost = dollars(errand.model, errand.most, self._prices)
        reserved = False
        try:
            refused = await meter.reserve(errand.model, Cost(calls=1, tokens=errand.most.total, dollars=cost))
            reserved = refused is None
        finally:
            if ticket is not None and not reserved:
                self.service.dropped(ticket)
        return refused

    async def _ask(self, errand: Errand, meter: Meter, ticket: Ticket) -> Answer | CallFault:
        try:
            result = await errand.ask(lambda headroom: self.service.begun(ticket, headroom))
        except BaseException:  # stopped under way: what was generated so far is paid for
            self.service.dropped(ticket)
            meter.release(lost=True)
            raise
        if isinstance(result, Answer):
            self.service.answered(ticket, result)
        return result

    def _waits(self, meter: Meter, fault: CallFault) -> bool:
        """Whether to wait with all others: a run that no model ever answered is told at once what is wrong."""
        return meter.waits_for(_CONDITIONS.get(fault.kind, "down"))

    def _instead_of(self, gone: str) -> str:
        self._gone.add(gone)
        return self.stand_in(gone)

    async def _note(self, errand: Errand, fault: CallFault, meter: Meter, transcript: Transcript, *, turn: int) -> None:
        transcript.write("fault", kind=fault.kind, message=fault.message, request_id=fault.request_id, turn=turn)
        await self._tell(meter)
        if fault.usage is not None:
            lost = "an answer that broke off"
            await meter.used(self._use(errand.model, fault.usage, seconds=fault.seconds, turn=turn, doing=lost))
        else:
            meter.release()

    async def _tell(self, meter: Meter) -> None:
        for news in self.service.news():
            await meter.noticed(news)

    def _use(self, model: str, usage: Usage, *, seconds: float, turn: int, doing: str) -> ModelUse:
        cost = dollars(model, usage, self._prices)
        return ModelUse(model=model, usage=usage, dollars=cost, seconds=seconds, turn=turn, doing=doing)


def as_failure(fault: CallFault, model: str) -> Failure:
    """What a call that stays without an answer means for whoever made it."""
    evidence = f"model {model}" + (f", request {fault.request_id}" if fault.request_id else "")
    return Failure(kind=_KINDS[fault.kind], summary=fault.message, evidence=evidence, status=fault.status)


def _begin_anew(request: Request, other: str) -> Failure:
    summary = f"the model {request.model} is gone; the next attempt begins with {other}"
    return Failure(kind="transient", summary=summary, status=404)


async def _rest(seconds: float, meter: Meter) -> None:
    """Wait before the next try. Raises `Drained` where that is long and nobody wants it waited for."""
    until = anyio.current_time() + seconds
    while (left := until - anyio.current_time()) > 0:
        if left > LAST_WAIT_S and not meter.may_wait():
            raise Drained
        await anyio.sleep(min(left, SLICE_S))


@contextmanager
def _stopped(clock: anyio.CancelScope | None) -> Iterator[None]:
    """The time inside does not count for `clock`."""
    if clock is None:
        yield
        return
    left = clock.deadline - anyio.current_time()
    clock.deadline = math.inf
    try:
        yield
    finally:
        clock.deadline = anyio.current_time() + left


_HINTS = ("path", "command", "pattern", "text")
_SHOWN = 60  # characters of what a call is about


def doing(answer: Answer) -> str:
    """What an answer asks for, in a few words: `bash pytest -q tests, report`."""
    calls = [f"{call.name} {_hint(call.input)}".rstrip() for call in answer.calls]
    return ", ".join(calls[:4]) + (", …" if len(calls) > 4 else "") or "text"  # noqa: PLR2004 - a line's worth


def _hint(arguments: Mapping[str, object]) -> str:
    """What a call is about: the path it names, else its command. The editor's command is a word of its own."""
    hints = (str(arguments[name]) for name in _HINTS if isinstance(arguments.get(name), str))
    return " ".join(next(hints, "").split())[:_SHOWN]
