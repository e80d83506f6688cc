"""Between a mind and the journal: what a call may cost is set aside before it, and what it did cost is a fact after it.

One purse a run. A call is made only when what it may cost at most fits into what is left, together with all calls under
way; one that fits only without those waits for them. The journal knows at every moment what the calls under way may
cost at most, so that no crash leaves more in doubt than that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from anyio import Event

from fleet.core import facts as f
from fleet.core.budget import Refusal, over_budget, refusal
from fleet.core.state import RunState
from fleet.core.usage import Cost
from fleet.ports import Clock, ModelUse, ServiceNews

ROOM = 1.5  # how much more than needed is journalled as held, so that not every call writes it anew
SLACK = 4  # and how much too much may stay


class Record(Protocol):
    """What a performer needs of the engine."""

    state: RunState

    async def record(self, *facts: f.Fact) -> None: ...

    async def propose(self, facts: Callable[[RunState], Sequence[f.Fact]]) -> None: ...


class Ledger(Record, Protocol):
    """And what a purse needs of it."""

    def note(self, *facts: f.Fact) -> None: ...


@dataclass(frozen=True, slots=True)
class Purpose:
    """What calls are for."""

    role: f.Role
    call: int | None = None
    area: str | None = None
    subtask: str | None = None
    attempt: int | None = None


@dataclass(slots=True)
class _Running:
    """What many calls may cost together: a thousand of them are not added up for each."""

    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0

    def add(self, cost: Cost, sign: int) -> None:
        self.calls += sign * cost.calls
        self.tokens += sign * cost.tokens
        self.dollars += sign * (cost.dollars or 0.0)
        self.unpriced += sign * (cost.dollars is None)

    @property
    def cost(self) -> Cost:
        return Cost(calls=self.calls, tokens=self.tokens, dollars=None if self.unpriced else max(0.0, self.dollars))


class Purse:
    """What the calls under way may cost, over all conversations of a run."""

    def __init__(self, engine: Ledger, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._held: dict[EngineMeter, tuple[str, Cost]] = {}
        self._calls = _Running()
        self._settled = Event()

    def meter(
        self,
        role: f.Role,
        *,
        call: int | None = None,
        area: str | None = None,
        subtask: str | None = None,
        attempt: int | None = None,
    ) -> "EngineMeter":
        return EngineMeter(self, Purpose(role, call, area, subtask, attempt))

    def is_open(self) -> bool:
        state = self._engine.state
        return not state.cancelled and over_budget(state, self._clock.now()) is None

    def waits_for(self, condition: f.ServiceCondition) -> bool:
        return condition == "limited" or self._engine.state.spent.calls > 0

    def may_wait(self) -> bool:
        return not self._engine.state.draining

    def words(self) -> int:
        questions = self._engine.state.questions.values()
        return sum(question.about is None and question.answer is not None for question in questions)

    async def noticed(self, news: ServiceNews) -> None:
        fact = f.ServiceChanged(
            at=self._clock.now(), scope=news.scope, condition=news.condition, why=news.why, status=news.status
        )
        await self._engine.record(fact)

    async def reserve(self, meter: "EngineMeter", model: str, cost: Cost) -> f.Failure | None:
        """Set aside what a call may cost; waits where only the calls under way are in the way."""
        purpose = meter.purpose
        while True:
            state, now = self._engine.state, self._clock.now()
            no = refusal(state, now, cost, self._sum(), purpose.subtask)
            if no is None:
                break
            if not (no.passes and self._held):
                return await self._refused(no)
            await self._settled.wait()
        self._held[meter] = (model, cost)
        self._calls.add(cost, 1)
        try:
            await self._cover()
        except BaseException:
            self._let_go(meter)
            raise
        return None

    async def _refused(self, no: Refusal) -> f.Failure:
        """Say once that the run's budget covers no more: nothing new begins."""

        def facts(state: RunState) -> Sequence[f.Fact]:
            now = self._clock.now()
            said = state.cancelled or over_budget(state, now) is not None
            return [] if said else [f.CallRefused(at=now, why=no.why)]

        if no.kind == "spent":
            await self._engine.propose(facts)
        return f.Failure(kind=no.kind, summary=no.why)

    async def used(self, meter: "EngineMeter", use: ModelUse) -> None:
        purpose = meter.purpose
        try:
            await self._engine.record(
                f.ModelCalled(
                    at=self._clock.now(),
                    role=purpose.role,
                    model=use.model,
                    usage=use.usage,
                    dollars=use.dollars,
                    seconds=use.seconds,
                    call=purpose.call,
                    area=purpose.area,
                    subtask=purpose.subtask,
                    attempt=purpose.attempt,
                    turn=use.turn,
                    doing=use.doing,
                )
            )
        finally:
            self._let_go(meter)

    def release(self, meter: "EngineMeter", *, lost: bool) -> None:
        """The call came to nothing: it cost nothing, or was stopped under way and may have cost all that was held."""
        held = self._held.get(meter)
        if held is None:
            return
        if lost:
            model, cost = held
            of = meter.purpose
            lost_call = f.CallLost(
                at=self._clock.now(), role=of.role, model=model, cost=cost, subtask=of.subtask, attempt=of.attempt
            )
            self._engine.note(lost_call)
        self._let_go(meter)

    def _sum(self) -> Cost:
        return self._calls.cost

    async def _cover(self) -> None:
        """See to it that the journal knows of enough."""

        def facts(state: RunState) -> Sequence[f.Fact]:
            needed, known = self._sum(), state.held
            if _fits(known, needed):
                return []
            more = needed if known == Cost() else _times(needed, ROOM)
            return [f.CallsHeld(at=self._clock.now(), cost=more)]

        if not _fits(self._engine.state.held, self._sum()):
            await self._engine.propose(facts)

    def _let_go(self, meter: "EngineMeter") -> None:
        if (held := self._held.pop(meter, None)) is not None:
            self._calls.add(held[1], -1)
        if not self._held:
            self._calls = _Running()  # sums of fractions drift
        self._settled.set()
        self._settled = Event()


class EngineMeter:
    """Counts the calls of one conversation, which makes one at a time."""

    def __init__(self, purse: Purse, purpose: Purpose) -> None:
        self._purse = purse
        self.purpose = purpose

    def may_call(self) -> bool:
        return self._purse.is_open()

    def waits_for(self, condition: f.ServiceCondition) -> bool:
        return self._purse.waits_for(condition)

    def words(self) -> int:
        return self._purse.words()

    def may_wait(self) -> bool:
        return self._purse.may_wait()

    async def noticed(self, news: ServiceNews) -> None:
        await self._purse.noticed(news)

    async def reserve(self, model: str, cost: Cost) -> f.Failure | None:
        return await self._purse.reserve(self, model, cost)

    async def used(self, use: ModelUse) -> None:
        await self._purse.used(self, use)

    def release(self, *, lost: bool = False) -> None:
        self._purse.release(self, lost=lost)


def _fits(known: Cost, needed: Cost) -> bool:
    return _covers(known, needed) and not _far_too_much(known, needed)


def _covers(known: Cost, needed: Cost) -> bool:
    dollars = known.dollars is None or (needed.dollars is not None and needed.dollars <= known.dollars)
    return dollars and needed.tokens <= known.tokens


def _far_too_much(known: Cost, needed: Cost) -> bool:
    if known.dollars is None:
        return needed.dollars is not None
    return known.tokens > SLACK * needed.tokens or known.dollars > SLACK * (needed.dollars or 0.0) + 1e-9


def _times(cost: Cost, factor: float) -> Cost:
    dollars = None if cost.dollars is None else cost.dollars * factor
    return Cost(calls=round(cost.calls * factor), tokens=round(cost.tokens * factor), dollars=dollars)
