"""Every call to a model goes through here: when it may be made, how often it is tried, and who is told what it cost.

Knows faults by their kind only; what a wire looks like is the model client's.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import anyio

from agents.models.answer import Answer, CallFault, FaultKind, Model, Request, estimated_tokens
from agents.models.prices import Price, dollars
from agents.transcripts import Transcript
from fleet.core.facts import Failure, FailureKind
from fleet.core.usage import Cost, Usage
from fleet.ports import Meter, ModelUse

_KINDS: dict[FaultKind, FailureKind] = {
    "transient": "transient",
    "configuration": "configuration",
    "too_long": "too_complex",  # what no longer fits into one conversation wants to be smaller
    "other": "other",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a call is tried again."""

    retries: int
    """Tries of one call."""
    backoff_first_s: float
    backoff_cap_s: float
    retry_after_cap_s: float
    pause_s: float
    spread_s: float


@dataclass(frozen=True, slots=True)
class Timing:
    """The time a caller lives in; tests bring their own."""

    now: Callable[[], float] = anyio.current_time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


@dataclass(slots=True)
class Pace:
    """When the fleet may call again. One for all callers of a service."""

    timing: Timing = field(default_factory=Timing)
    not_before: float = float("-inf")

    def hold_back(self, seconds: float) -> None:
        self.not_before = max(self.not_before, self.timing.now() + seconds)

    async def wait_turn(self, spread: Callable[[], float]) -> None:
        """Until the pause is over; `spread` keeps those who waited from calling all at once."""
        while (left := self.not_before - self.timing.now()) > 0:
            await self.timing.sleep(left + spread())


def backoff_s(failures: int, patience: Patience, chance: Random) -> float:
    """Full jitter: anything up to the bound, so that those who failed together don't return together."""
    bound = min(patience.backoff_cap_s, patience.backoff_first_s * 2.0 ** min(failures - 1, 32))
    return chance.uniform(0, bound)


class Caller:
    """Makes calls, with patience."""

    def __init__(
        self,
        model: Model,
        patience: Patience,
        prices: Mapping[str, Price],
        *,
        chance: Random,
        timing: Timing | None = None,
    ) -> None:
        self._model = model
        self._patience = patience
        self._prices = prices
        self._chance = chance
        self._timing = timing or Timing()
        self._pace = Pace(self._timing)

    async def call(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> Answer | Failure:
        """One answer, after as many tries as it takes and is allowed."""
        fault = CallFault("transient", "no call was made")
        for tries in range(max(1, self._patience.retries)):
            if tries and not fault.limits_fleet:
                await self._timing.sleep(self._wait_s(fault, tries))
            await self._pace.wait_turn(lambda: self._chance.uniform(0, self._patience.spread_s))
            if (refused := await self._reserve(request, meter)) is not None:
                return refused
            result = await self._asked(request, meter)
            if isinstance(result, Answer):
                model = result.model or request.model
                what = doing(result)
                await meter.used(self._use(model, result.usage, seconds=result.seconds, turn=turn, doing=what))
                return result
            fault = result
            transcript.write("fault", kind=fault.kind, message=fault.message, request_id=fault.request_id, turn=turn)
            if fault.usage is not None:
                lost = "an answer that broke off"
                await meter.used(self._use(request.model, fault.usage, seconds=fault.seconds, turn=turn, doing=lost))
            else:
                meter.release()
            if fault.kind != "transient":
                break
            if fault.limits_fleet:
                self._pace.hold_back(self._pause_s(fault, tries))
        return as_failure(fault, request.model)

    async def _reserve(self, request: Request, meter: Meter) -> Failure | None:
        """What the call may cost at most is set aside before it is made."""
        most = Usage(cache_write=estimated_tokens(request), output=request.max_tokens)
        cost = dollars(request.model, most, self._prices)
        return await meter.reserve(request.model, Cost(calls=1, tokens=most.total, dollars=cost))

    async def _asked(self, request: Request, meter: Meter) -> Answer | CallFault:
        try:
            return await self._model.ask(request)
        except BaseException:  # stopped under way: what was generated so far is paid for
            meter.release(lost=True)
            raise

    def _wait_s(self, fault: CallFault, tries: int) -> float:
        backoff = backoff_s(tries, self._patience, self._chance)
        if fault.retry_after_s is None:
            return backoff
        return min(fault.retry_after_s, self._patience.retry_after_cap_s) + backoff

    def _pause_s(self, fault: CallFault, tries: int) -> float:
        """What was asked for, but never nothing: a server may say `retry-after: 0` for ever."""
        least = backoff_s(tries + 1, self._patience, self._chance)
        if fault.retry_after_s is not None:
            return max(least, min(fault.retry_after_s, self._patience.retry_after_cap_s))
        return min(self._patience.pause_s * 2.0 ** min(tries, 32), self._patience.retry_after_cap_s)

    def _use(self, model: str, usage: Usage, *, seconds: float, turn: int, doing: str) -> ModelUse:
        cost = dollars(model, usage, self._prices)
        return ModelUse(model=model, usage=usage, dollars=cost, seconds=seconds, turn=turn, doing=doing)


def as_failure(fault: CallFault, model: str) -> Failure:
    """What a call that stays without an answer means for whoever made it."""
    evidence = f"model {model}" + (f", request {fault.request_id}" if fault.request_id else "")
    return Failure(kind=_KINDS[fault.kind], summary=fault.message, evidence=evidence)


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
