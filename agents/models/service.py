"""The state shared by all callers of a service: rate limiters, circuit breakers and the queue of calls.

Callers acquire a permit, make the call elsewhere and report its result. Notices for people are collected.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

import anyio

from agents.models.answer import Answer, CallFault, FaultKind, Quota, QuotaKind, Quotas
from fleet.core.base.usage import Usage
from fleet.ports.agents import CallGauges, DrainingError, Meter, RemainingQuota, ServiceNotice

# ---- rate limiter ----------------------------------------------------------------------------------------------------
# The rate limiter of a family of models: determines when the next call may be made.
#
# It follows the quotas in responses. Without quotas, it learns a rate: additive increase while calls succeed,
# multiplicative decrease at a limit. Pure: the time is passed in.


FIRST = 8  # pending calls before the first one is admitted
MINUTE = 60.0
SHARE_KEPT = 0.85  # of the rate, at a limit without numbers
REGAINED_S = 10.0  # until a reduced rate has recovered
RECENT_S = 5.0  # window for measuring the rate at a limit
SAME_LIMIT_S = 1.0  # limits met within this time count as one
SLOWEST = 0.1  # calls a second
LEARNING = 0.1  # weight of an answer in the expected size of the next
WIDEST = 100_000

_FAMILY = re.compile(r"claude-([a-z]+)")


def family(model: str) -> str:
    """Return the family of a model, which shares limits: `haiku`, `sonnet`, `opus`, or the name of another model."""
    match = _FAMILY.match(model)
    return match[1] if match else model


@dataclass(slots=True)
class Permit:
    """A permit for one call, valid until the call has ended."""

    family: str
    probe: bool = False
    """Whether the call probes an open circuit breaker. Other callers wait for its result."""
    issued_at: float = 0.0
    admitted: bool = False
    """Whether the answer has started."""


@dataclass(slots=True)
class Bucket:
    """A quota that refills evenly, up to the highest level seen."""

    limit: float
    level: float
    most: float
    at: float

    def refill(self, now: float) -> None:
        self.level = min(self.most, self.level + max(0.0, now - self.at) * self.limit / MINUTE)
        self.at = now

    def wait_s(self, need: float, now: float) -> float:
        self.refill(now)
        missing = min(need, self.most) - self.level
        return missing * MINUTE / self.limit if missing > 0 else 0.0


@dataclass(slots=True)
class LearnedRate:
    """Calls per second, learned from successes and limits."""

    rate: float
    step: float
    """The increase per second."""
    next_at: float
    at: float
    slowed_at: float = -math.inf

    def grow(self, now: float) -> None:
        self.rate += self.step * max(0.0, now - self.at)
        self.at = now


@dataclass(slots=True)
class RateLimiter:
    """Tracks the calls of a family and determines when the next one may be made."""

    window: float = FIRST
    """The maximum number of pending calls. Doubles while all are admitted."""
    pending: int = 0
    """The number of running calls that have not been admitted yet."""
    unfinished: int = 0
    not_before: float = -math.inf
    buckets: dict[QuotaKind, Bucket] = field(default_factory=dict)
    learned: LearnedRate | None = None
    limited_since: float | None = None
    """The time since which limits have blocked every call."""
    _sizes: dict[QuotaKind, float] = field(default_factory=lambda: {"requests": 1.0, "input": 0.0, "output": 0.0})
    _admitted_at: deque[float] = field(default_factory=deque)

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next call; infinite if a pending one has to be admitted first."""
        waits = [self.not_before - now]
        waits += (bucket.wait_s(self._sizes[kind], now) for kind, bucket in self.buckets.items())
        if self.learned is not None:
            waits.append(self.learned.next_at - now)
        wait = max(waits)
        if wait <= 0 and self.pending >= self.window:
            return math.inf
        return max(0.0, wait)

    def sent(self, now: float) -> None:
        self.pending += 1
        self.unfinished += 1
        for kind, bucket in self.buckets.items():
            bucket.level -= self._sizes[kind]
        if self.learned is not None:
            self.learned.grow(now)
            self.learned.next_at = max(now, self.learned.next_at) + 1 / self.learned.rate

    def admitted(self, quotas: Quotas, now: float) -> None:
        """Record that an answer has started."""
        self.pending -= 1
        self.window = min(self.window + 1, WIDEST)
        self.limited_since = None
        self._admitted_at.append(now)
        self._forget_old(now)
        self._update(quotas, now)

    def ended(self, usage: Usage | None, *, admitted: bool) -> None:
        self.unfinished -= 1
        self.pending -= not admitted
        if usage is not None:
            used: Mapping[QuotaKind, int] = {"input": usage.input + usage.cache_write, "output": usage.output}
            for kind, size in used.items():
                expected = self._sizes[kind]
                self._sizes[kind] = expected + LEARNING * (size - expected) if expected else float(size)

    def limited(self, quotas: Quotas, now: float) -> None:
        """Record that a call hit a limit."""
        self.limited_since = now if self.limited_since is None else self.limited_since
        self._update(quotas, now)
        if not quotas or all(quota.remaining >= 1 for quota in quotas.values()):
            self._slow_down(now)

    def start_slowly(self) -> None:
        """Restart after an outage with one call, and double the number each time."""
        self.window = 1

    def quotas(self, now: float) -> dict[QuotaKind, Quota]:
        """Estimate the remaining quotas."""
        for bucket in self.buckets.values():
            bucket.refill(now)
        return {kind: Quota(bucket.limit, max(0.0, bucket.level)) for kind, bucket in self.buckets.items()}

    def _update(self, quotas: Quotas, now: float) -> None:
        """Set the quotas to the service's figures, minus calls that it has not counted yet."""
        for kind, quota in quotas.items():
            uncounted = self.unfinished if kind == "output" else self.pending
            level = quota.remaining - uncounted * self._sizes[kind]
            bucket = self.buckets.get(kind)
            if bucket is None or bucket.limit != quota.limit:
                self.buckets[kind] = Bucket(quota.limit, level, max(1.0, quota.remaining, quota.limit / MINUTE), now)
                continue
            bucket.level, bucket.at, bucket.most = level, now, max(bucket.most, quota.remaining)

    def _slow_down(self, now: float) -> None:
        if self.learned is None:
            self._forget_old(now)
            recent = self._admitted_at
            span = max(1.0, now - recent[0]) if recent else RECENT_S
            self.learned = LearnedRate(max(SLOWEST, len(recent) / span), 0.0, now, now)
        learned = self.learned
        if now < learned.slowed_at + SAME_LIMIT_S:  # limits of concurrent calls count as one
            return
        learned.grow(now)
        before, learned.slowed_at = learned.rate, now
        learned.rate = max(SLOWEST, before * SHARE_KEPT)
        learned.step = max(SLOWEST, before - learned.rate) / REGAINED_S

    def _forget_old(self, now: float) -> None:
        while self._admitted_at and self._admitted_at[0] < now - RECENT_S:
            self._admitted_at.popleft()


# ---- service ---------------------------------------------------------------------------------------------------------


# ---- circuit breaker -------------------------------------------------------------------------------------------------
# The circuit breaker: closed while calls succeed, open after faults, half-open for one probe at a time.
#
# Pure: the time is passed in.


Condition = Literal["down", "limited", "refused"]

SHARE = 0.15  # the wait until the next probe, as a share of the time since the breaker opened
LONGEST = 10  # times `max_wait_s`: the longest wait between probes


@dataclass(frozen=True, slots=True)
class Trip:
    """The reason and start of an open breaker."""

    condition: Condition
    why: str
    since: float


@dataclass(slots=True)
class CircuitBreaker:
    """A circuit breaker: closed without a `trip`, otherwise open, and half-open while `probing`."""

    scope: str
    """The family of models whose calls it blocks; empty for all calls."""
    max_wait_s: float
    """The longest wait between probes during a short outage."""
    trip: Trip | None = None
    probe_at: float = 0.0
    probing: bool = False
    announced: bool = False
    """Whether a notice was sent that it is open."""
    announce_probe: bool = False
    """Whether a human is waiting for the result of the next probe."""
    failures: int = 0
    """Consecutive failures while it is closed."""
    failing_since: float = math.inf
    """When the first of these calls was requested."""

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next probe: infinite during a probe, 0 while closed."""
        if self.trip is None:
            return 0.0
        return math.inf if self.probing else max(0.0, self.probe_at - now)

    def open(self, trip: Trip, wait_s: float) -> None:
        """Block all calls for `wait_s`."""
        self._reset(trip)
        self.probe_at = trip.since + wait_s

    def stay_open(self, why: str, now: float, wait_s: float) -> None:
        """Stay open after a failed probe. The wait between probes grows with the time since the breaker opened."""
        if self.trip is not None:
            self.trip = replace(self.trip, why=why)
            self.probe_at = now + min(max(wait_s, SHARE * (now - self.trip.since)), LONGEST * self.max_wait_s)

    def failed(self, asked_at: float) -> None:
        """Count a failed call."""
        self.failures += 1
        self.failing_since = min(self.failing_since, asked_at)

    def answered(self, asked_at: float) -> None:
        """Record the start of an answer. Answers to calls requested before the failures are ignored."""
        if asked_at >= self.failing_since:
            self._forget_failures()

    def close(self) -> None:
        self._reset(None)
        self._forget_failures()

    def _forget_failures(self) -> None:
        self.failures, self.failing_since = 0, math.inf

    def _reset(self, trip: Trip | None) -> None:
        self.trip, self.probing, self.announced, self.announce_probe = trip, False, False, False


# ---- service ---------------------------------------------------------------------------------------------------------


SLICE_S = 1.0  # interval at which a waiting caller checks whether it may still wait
TICK_S = 0.001  # the shortest wait, because of the clock's precision
LAST_WAIT_S = 2.0  # the longest wait for a permit in a draining run
ANNOUNCED_S = 10.0  # the shortest wait that is announced
FIRST_PROBE_S = 0.5  # from the trip to the first probe
LEAST_S = 0.05  # a limit holds at least this long
SPREAD = 0.25  # the random extension of a wait, as a share of it
FAILURES = 3  # consecutive failed calls that open the breaker, without the start of an answer to a later call
CONDITIONS: dict[FaultKind, Condition] = {"limit": "limited", "outage": "down", "refused": "refused"}
"""The condition of the service that a fault indicates. Other faults concern one call."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of retries."""

    retries: int
    """The number of retries of a call while other calls succeed."""
    backoff_first_s: float
    retry_after_cap_s: float
    """The longest wait between probes, even if the service requests a longer one."""
    backoff_cap_s: float = 60.0
    pause_s: float = 2.0
    """The wait after a limit without a time."""


@dataclass(slots=True)
class _Family:
    """A family of models with the queue of its callers."""

    limiter: RateLimiter
    breaker: CircuitBreaker
    queue: anyio.Lock = field(default_factory=anyio.Lock)


class Service:
    """The state of the service at one base URL."""

    def __init__(self, policy: RetryPolicy, chance: Random) -> None:
        self._policy = policy
        self._chance = chance
        self._breaker = CircuitBreaker("", policy.retry_after_cap_s)
        self._families: dict[str, _Family] = {}
        self._notices: list[ServiceNotice] = []
        self._changed = anyio.Event()
        self._human_answers = 0
        self._calls = self._answers = self._waiting = self._underway = 0
        self._faults: Counter[str] = Counter()

    # ---- waiting

    async def acquire(self, model: str, meter: Meter) -> Permit | None:
        """Wait for a permit, first come, first served. Return None if the meter does not allow another call.

        Raises `DrainingError` if the run is draining and the wait would be long.
        """
        group, arrived = self._family(model), anyio.current_time()
        self._waiting += 1
        try:
            async with group.queue:
                while meter.may_call():
                    wait = self._wait_s(group, meter)
                    if wait <= 0:
                        return self._issue(model, group)
                    if meter.service.rules().draining and self._is_long(wait, arrived):
                        raise DrainingError
                    changed = self._changed
                    with anyio.move_on_after(min(max(wait, TICK_S), SLICE_S)):
                        await changed.wait()
        finally:
            self._waiting -= 1
        return None

    def _wait_s(self, group: _Family, meter: Meter) -> float:
        """Return the seconds to wait. An open breaker only blocks callers that wait for its condition."""
        now, rules = anyio.current_time(), meter.service.rules()
        if rules.human_answers > self._human_answers:  # a human requested another try
            self._human_answers = rules.human_answers
            self._probe_now(now)
        waits = [
            breaker.wait_s(now)
            for breaker in (self._breaker, group.breaker)
            if breaker.trip is not None and breaker.trip.condition in rules.waits_for
        ]
        return max(*waits, group.limiter.not_before - now) if waits else group.limiter.wait_s(now)

    def _is_long(self, wait: float, arrived: float) -> bool:
        """Whether a caller that arrived at `arrived` waits longer than a draining run allows."""
        now, until = anyio.current_time(), arrived + LAST_WAIT_S
        return now >= until or (math.isfinite(wait) and now + wait > until)

    def _probe_now(self, now: float) -> None:
        for breaker in self._breakers():
            breaker.probe_at, breaker.announce_probe = min(breaker.probe_at, now), True

    def _issue(self, model: str, group: _Family) -> Permit:
        open_breakers = [each for each in (self._breaker, group.breaker) if each.trip is not None]
        for breaker in open_breakers:
            breaker.probing = True
        group.limiter.sent(anyio.current_time())
        self._calls += 1
        self._underway += 1
        return Permit(family(model), probe=bool(open_breakers), issued_at=anyio.current_time())

    # ---- how a call ended

    def begun(self, permit: Permit, quotas: Quotas) -> None:
        """Record the start of an answer: the service works again."""
        if permit.admitted:
            return
        permit.admitted = True
        group = self._families[permit.family]
        group.limiter.admitted(quotas, anyio.current_time())
        self._breaker.answered(permit.issued_at)
        for breaker in (self._breaker, group.breaker):
            if breaker.trip is not None and permit.issued_at >= breaker.trip.since:
                self._close(breaker)
        self._notify()

    def answered(self, permit: Permit, answer: Answer) -> None:
        self.begun(permit, {})
        self._answers += 1
        self._ended(permit, answer.usage)

    def failed(self, permit: Permit, fault: CallFault) -> bool:
        """Record a fault. Return whether it concerns every caller, so that this one waits without using a retry."""
        self._faults[fault.kind] += 1
        if fault.kind not in CONDITIONS:  # the service works, only this request is invalid
            self.begun(permit, fault.quotas)
        self._ended(permit, fault.usage)
        match fault.kind:
            case "limit":
                self._on_limit(permit, fault)
            case "outage":
                self._on_outage(permit, fault)
            case "refused":
                self._trip(self._breaker, fault, self._policy.retry_after_cap_s, probe=permit.probe)
            case _:
                pass
        self._notify()
        return fault.kind in {"limit", "refused"} or (fault.kind == "outage" and self._breaker.trip is not None)

    def cancelled(self, permit: Permit) -> None:
        """Release the permit of a canceled call."""
        self._ended(permit, None)
        self._notify()

    def _ended(self, permit: Permit, usage: Usage | None) -> None:
        group = self._families[permit.family]
        self._underway -= 1
        group.limiter.ended(usage, admitted=permit.admitted)
        if permit.probe:
            self._breaker.probing = group.breaker.probing = False

    def _on_limit(self, permit: Permit, fault: CallFault) -> None:
        group, policy, now = self._families[permit.family], self._policy, anyio.current_time()
        limiter, asked = group.limiter, fault.retry_after_s
        limiter.limited(fault.quotas, now)
        lasted = now - (limiter.limited_since or now)
        least = SHARE * lasted + LEAST_S  # a server may keep sending `retry-after: 0`
        hold = self._jittered(max(least, asked if asked is not None else policy.pause_s * self._chance.uniform(0.5, 1)))
        limiter.not_before = max(limiter.not_before, now + min(hold, policy.retry_after_cap_s))
        if self._breaker.trip is not None and permit.probe:  # the service responds again, even if with a limit
            self._close(self._breaker)
        if group.breaker.trip is not None or max(hold, lasted) > ANNOUNCED_S:
            self._trip(group.breaker, fault, hold, probe=permit.probe)

    def _on_outage(self, permit: Permit, fault: CallFault) -> None:
        breaker = self._breaker
        breaker.failed(permit.issued_at)
        wait = max(FIRST_PROBE_S, min(fault.retry_after_s or 0.0, self._policy.retry_after_cap_s))
        pending = sum(group.limiter.pending for group in self._families.values())
        if breaker.trip is not None:
            self._trip(breaker, fault, wait, probe=permit.probe, announce=permit.probe)
        elif breaker.failures >= max(FAILURES, pending // 4):  # announced after a failed probe
            self._trip(breaker, fault, wait, probe=False, announce=False)

    def _trip(
        self, breaker: CircuitBreaker, fault: CallFault, wait_s: float, *, probe: bool, announce: bool = True
    ) -> None:
        """Open the breaker. If it is already open, only the result of a probe is considered."""
        now, wait_s = anyio.current_time(), self._jittered(min(wait_s, breaker.max_wait_s))
        condition = CONDITIONS[fault.kind]
        if breaker.trip is None or breaker.trip.condition != condition:
            breaker.open(Trip(condition, fault.message, now), wait_s)
        elif probe:
            breaker.stay_open(fault.message, now, wait_s)
        if announce and (not breaker.announced or (probe and breaker.announce_probe)):
            breaker.announced, breaker.announce_probe = True, False
            self._notices.append(ServiceNotice(breaker.scope, condition, fault.message, fault.status))

    def _close(self, breaker: CircuitBreaker) -> None:
        if breaker.announced and breaker.trip is not None:
            self._notices.append(ServiceNotice(breaker.scope, "up", breaker.trip.why))
        breaker.close()
        for group in self._families.values():
            group.limiter.start_slowly()

    def _jittered(self, seconds: float) -> float:
        """Return the wait plus a random extension."""
        return seconds * (1 + SPREAD * self._chance.random())

    # ---- for others

    def take_notices(self) -> list[ServiceNotice]:
        """Return the notices for people since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def gauges(self) -> CallGauges:
        now = anyio.current_time()
        remaining = tuple(
            RemainingQuota(name, kind, quota.limit, quota.remaining)
            for name, group in self._families.items()
            for kind, quota in group.limiter.quotas(now).items()
        )
        tripped = {breaker.scope: breaker.trip.condition for breaker in self._breakers() if breaker.trip}
        faults = dict(self._faults)
        return CallGauges(self._calls, self._answers, faults, self._underway, self._waiting, remaining, tripped)

    def _breakers(self) -> list[CircuitBreaker]:
        return [self._breaker, *(group.breaker for group in self._families.values())]

    def _family(self, model: str) -> _Family:
        name = family(model)
        if name not in self._families:
            self._families[name] = _Family(RateLimiter(), CircuitBreaker(name, self._policy.retry_after_cap_s))
        return self._families[name]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
