"""The rate limiter of one family of models: when the next call may be made.

It follows the quotas that responses name. If they name none, it learns a rate: additive increase while calls succeed,
multiplicative decrease at a limit. Pure: the time is passed in, and nothing waits here.
"""

import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.models.answer import Quota, QuotaKind, Quotas
from fleet.core.base.usage import Usage

FIRST = 8  # calls that may be pending before the first one has been admitted
MINUTE = 60.0
SHARE_KEPT = 0.85  # of the rate, at a limit that names no numbers
REGAINED_S = 10.0  # until a reduced rate is back where it was
RECENT_S = 5.0  # over which the rate that met a limit is measured
SAME_LIMIT_S = 1.0  # limits met within this time count as one
SLOWEST = 0.1  # calls a second
LEARNING = 0.1  # weight of one answer in the expected size of the next
WIDEST = 100_000

_FAMILY = re.compile(r"claude-([a-z]+)")


def family(model: str) -> str:
    """The models that share their limits: `haiku`, `sonnet`, `opus`; an unknown model is its own family."""
    match = _FAMILY.match(model)
    return match[1] if match else model


@dataclass(slots=True)
class Permit:
    """The right to make one call, from the moment it is issued until the call has ended."""

    family: str
    probe: bool = False
    """Made while a circuit breaker is open; other callers wait for its result."""
    issued_at: float = 0.0
    admitted: bool = False
    """Whether the service has begun to answer."""


@dataclass(slots=True)
class Bucket:
    """One quota: refills evenly up to the highest level ever seen."""

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
    """Calls a second, learned from successes and limits."""

    rate: float
    step: float
    """By how much it grows each second."""
    next_at: float
    at: float
    slowed_at: float = -math.inf

    def grow(self, now: float) -> None:
        self.rate += self.step * max(0.0, now - self.at)
        self.at = now


@dataclass(slots=True)
class RateLimiter:
    """Records the calls of one family, and says when the next one may be made."""

    window: float = FIRST
    """How many calls may be pending. Doubles while all are admitted."""
    pending: int = 0
    """Calls under way that have not been admitted yet."""
    unfinished: int = 0
    not_before: float = -math.inf
    buckets: dict[QuotaKind, Bucket] = field(default_factory=dict)
    learned: LearnedRate | None = None
    limited_since: float | None = None
    """Since when limits have kept every call out."""
    _sizes: dict[QuotaKind, float] = field(default_factory=lambda: {"requests": 1.0, "input": 0.0, "output": 0.0})
    _admitted_at: deque[float] = field(default_factory=deque)

    def wait_s(self, now: float) -> float:
        """Seconds until the next call may be made; infinite if a pending one has to be admitted first."""
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
        """The service has begun to answer a call."""
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
        """A call met a limit."""
        self.limited_since = now if self.limited_since is None else self.limited_since
        self._update(quotas, now)
        if not quotas or all(quota.remaining >= 1 for quota in quotas.values()):
            self._slow_down(now)

    def start_slowly(self) -> None:
        """After an outage: one call first, then twice as many each time."""
        self.window = 1

    def quotas(self, now: float) -> dict[QuotaKind, Quota]:
        """An estimate of what remains now."""
        for bucket in self.buckets.values():
            bucket.refill(now)
        return {kind: Quota(bucket.limit, max(0.0, bucket.level)) for kind, bucket in self.buckets.items()}

    def _update(self, quotas: Quotas, now: float) -> None:
        """Take over the service's figures, less the calls it has not counted yet."""
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
        if now < learned.slowed_at + SAME_LIMIT_S:  # calls that were under way together say nothing new
            return
        learned.grow(now)
        before, learned.slowed_at = learned.rate, now
        learned.rate = max(SLOWEST, before * SHARE_KEPT)
        learned.step = max(SLOWEST, before - learned.rate) / REGAINED_S

    def _forget_old(self, now: float) -> None:
        while self._admitted_at and self._admitted_at[0] < now - RECENT_S:
            self._admitted_at.popleft()
