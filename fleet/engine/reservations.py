"""The budget of a run: reserves the highest possible cost of a call before it, and records the actual cost after it.

A call starts only if its maximum fits into the remaining budget together with all calls in flight. A call that does not
fit because of other calls waits for them. The journal always contains the maximum of all calls in flight, which limits
the unknown cost after a crash.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from anyio import Event

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.policy.budget import over_budget, refusal, widening
from fleet.core.state.state import RunState
from fleet.core.state.status import Area
from fleet.ports.agents import ModelUse, ServiceGate, ServiceNotice, WaitRules
from fleet.ports.journal import Clock, Recorder

ROOM = 1.5  # the journal records a larger reservation than needed, so that not every call is written
SLACK = 4  # the factor by which the recorded reservation may be too large
LIMITS: frozenset[f.ServiceCondition] = frozenset({"limited"})
TROUBLES: frozenset[f.ServiceCondition] = LIMITS | {"down", "refused"}


@dataclass(frozen=True, slots=True)
class Purpose:
    """Purpose of the calls of a conversation."""

    role: f.Role
    call: int | None = None
    area: Area = None
    subtask: SubtaskId | None = None
    attempt: int | None = None


class RunBudget:
    """The reservations of all conversations of a run."""

    def __init__(self, engine: Recorder, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self.service = service_gate(engine, clock)
        self._reserved = _Total()
        self._widened = _Total()
        """Part of the reservation beyond the usual cost of calls."""
        self._freed = Event()

    async def reserve(self, cost: Cost, subtask: SubtaskId | None) -> f.Failure | None:
        """Reserve the highest possible cost of a call.

        Wait for other calls if necessary. Return a failure if it never fits.
        """
        while (refused := refusal(self.engine.state, self.clock.now(), cost, self._reserved.cost, subtask)) is not None:
            if not (refused.temporary and self._reserved.reservations):
                if refused.kind == "spent":
                    await self._record_refusal(refused.why)
                return f.Failure(kind=refused.kind, summary=refused.why)
            await self._freed.wait()
        self._reserved.add(cost, 1)
        try:
            await self.record_reservations()
        except BaseException:
            self.free(cost)
            raise
        return None

    async def widen(self, least: Cost, most: Cost, subtask: SubtaskId | None) -> tuple[float, Cost]:
        """Extend the reservation of a call towards `most`. Return the granted share and the added cost."""
        held, widened = self._reserved.cost, self._widened.cost
        now = self.clock.now()
        share = widening(self.engine.state, now, least, most, held=held, widened=widened, subtask=subtask)
        added = _times(_difference(most, least), share)
        self._reserved.add(added, 0)
        self._widened.add(added, 1)
        try:
            await self.record_reservations()
        except BaseException:
            self.free_widened(added)
            raise
        return share, added

    def free_widened(self, cost: Cost) -> None:
        self._reserved.add(cost, 0, -1)
        self._widened.add(cost, -1)
        if not self._widened.reservations:
            self._widened = _Total()

    async def _record_refusal(self, why: str) -> None:
        """Record once that the run's budget is exhausted, so that no new work starts."""
        await self.engine.propose(
            lambda state: [f.CallRefused(at=self.clock.now(), why=why)] if self.allows_calls(state) else []
        )

    def allows_calls(self, state: RunState) -> bool:
        return not state.cancelled and over_budget(state, self.clock.now()) is None

    def free(self, cost: Cost) -> None:
        self._reserved.add(cost, -1)
        if not self._reserved.reservations:
            self._reserved = _Total()  # sums of fractions drift
        self._freed.set()
        self._freed = Event()

    async def record_reservations(self) -> None:
        """Record a reservation that covers the calls in flight, unless the journal already has one."""

        def facts(state: RunState) -> Sequence[f.Fact]:
            needed, recorded = self._reserved.cost, state.held
            if _covers(recorded, needed):
                return []
            cost = needed if recorded == Cost() else _times(needed, ROOM)
            return [f.CallsHeld(at=self.clock.now(), cost=cost)]

        if not _covers(self.engine.state.held, self._reserved.cost):
            await self.engine.propose(facts)


class CallMeter:
    """Satisfies `Meter`: the calls of one conversation, one at a time."""

    def __init__(self, budget: RunBudget, purpose: Purpose) -> None:
        self._budget = budget
        self._purpose = purpose
        self._reservation: tuple[str, Cost] | None = None
        self.called = False
        """Whether a call was made, or was about to be."""
        self._widened: Cost | None = None

    @property
    def service(self) -> ServiceGate:
        return self._budget.service

    def may_call(self) -> bool:
        return self._budget.allows_calls(self._budget.engine.state)

    async def reserve(self, model: str, cost: Cost) -> f.Failure | None:
        failure = await self._budget.reserve(cost, self._purpose.subtask)
        self.called = self.called or failure is None
        if failure is None:
            self._reservation = (model, cost)
        return failure

    async def widen(self, most: Cost) -> float:
        if self._reservation is None:
            return 0.0
        share, self._widened = await self._budget.widen(self._reservation[1], most, self._purpose.subtask)
        return share

    async def used(self, use: ModelUse) -> None:
        self.called = True
        called = f.ModelCalled(at=self._budget.clock.now(), **asdict(self._purpose), **asdict(use))
        try:
            await self._budget.engine.record(called)
        finally:
            self._free()

    def release(self, *, lost: bool = False) -> None:
        if self._reservation is not None and lost:
            model, cost = self._reservation
            cost = cost + self._widened if self._widened is not None else cost
            at, of = self._budget.clock.now(), self._purpose
            self._budget.engine.note(
                f.CallLost(at=at, role=of.role, model=model, cost=cost, subtask=of.subtask, attempt=of.attempt)
            )
        self._free()

    def _free(self) -> None:
        if self._widened is not None:
            self._budget.free_widened(self._widened)
            self._widened = None
        if self._reservation is not None:
            self._budget.free(self._reservation[1])
            self._reservation = None


def service_gate(engine: Recorder, clock: Clock) -> ServiceGate:
    """Return a gate for calls that follows the run's state and records outages as facts."""

    def rules() -> WaitRules:
        """A run that never had an answer waits only for limits: otherwise its configuration may be wrong."""
        state = engine.state
        answers = [each for each in state.questions.values() if each.about is None and each.answer is not None]
        return WaitRules(TROUBLES if state.spent.calls else LIMITS, state.draining, len(answers))

    async def report(notice: ServiceNotice) -> None:
        await engine.record(f.ServiceChanged(at=clock.now(), **asdict(notice)))

    async def warn(text: str) -> None:
        await engine.record(f.WarningNoted(at=clock.now(), text=text))

    return ServiceGate(rules, report, warn)


@dataclass(slots=True)
class _Total:
    """A running sum, so that a thousand reservations need not be added up for each call."""

    reservations: int = 0
    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0

    def add(self, cost: Cost, reservations: int, sign: int = 0) -> None:
        """Add a cost or take it away: for one reservation more or less, or for none."""
        sign = sign or reservations or 1
        self.reservations += reservations
        self.calls += sign * cost.calls
        self.tokens += sign * cost.tokens
        self.dollars += sign * (cost.dollars or 0.0)
        self.unpriced += sign * (cost.dollars is None)

    @property
    def cost(self) -> Cost:
        return Cost(calls=self.calls, tokens=self.tokens, dollars=None if self.unpriced else max(0.0, self.dollars))


def _covers(recorded: Cost, needed: Cost) -> bool:
    """Whether the recorded reservation is large enough, and not far too large."""
    if recorded.dollars is None:
        return needed.dollars is None and needed.tokens <= recorded.tokens
    if needed.dollars is None or needed.dollars > recorded.dollars or needed.tokens > recorded.tokens:
        return False
    return recorded.tokens <= SLACK * needed.tokens and recorded.dollars <= SLACK * needed.dollars + 1e-9


def _difference(most: Cost, least: Cost) -> Cost:
    dollars = None if most.dollars is None or least.dollars is None else max(0.0, most.dollars - least.dollars)
    return Cost(calls=0, tokens=max(0, most.tokens - least.tokens), dollars=dollars)


def _times(cost: Cost, factor: float) -> Cost:
    dollars = None if cost.dollars is None else cost.dollars * factor
    return Cost(calls=round(cost.calls * factor), tokens=round(cost.tokens * factor), dollars=dollars)
