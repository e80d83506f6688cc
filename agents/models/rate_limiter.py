"""When calls to one family of models may be made: what its limits grant, learned from what the service says.

Where responses name limits and what is left of them, that is followed. Where they don't, a rate is felt for: up a
little while all goes well, down by a share at a limit. Pure: the time is handed in, and nobody waits here.
"""

import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agents.models.answer import Counted, Headroom, Room
from fleet.core.usage import Usage

FIRST = 8  # calls on their way before the first one has been let in
MINUTE = 60.0
SHARE_KEPT = 0.85  # of the rate, at a limit that names no numbers
REGAINED_S = 10.0  # how long it takes to be as fast as before
RECENT_S = 5.0  # over which the rate is measured that met a limit
AT_ONCE_S = 1.0  # limits met within this time are one
SLOWEST = 0.1  # calls a second
LEARNING = 0.1  # how much one answer says about the size of the next
WIDEST = 100_000

_FAMILY = re.compile(r"claude-([a-z]+)")


def family(model: str) -> str:
    """The models that share their limits: `haiku`, `sonnet`, `opus`; a stranger is its own family."""
    found = _FAMILY.match(model)
    return found[1] if found else model


@dataclass(slots=True)
class Ticket:
    """One call on its way."""

    family: str
    knock: bool = False
    """Made to see whether the service answers again; the others wait for what it brings."""
    at: float = 0.0
    begun: bool = False


@dataclass(slots=True)
class Bucket:
    """One limit: refills evenly, and never holds more than was ever seen in it."""

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
class Feeling:
    """A rate without numbers to go by: additive increase, multiplicative decrease."""

    rate: float
    step: float
    """Calls a second by which it grows each second."""
    next_at: float
    at: float
    slowed_at: float = -math.inf

    def grow(self, now: float) -> None:
        self.rate += self.step * max(0.0, now - self.at)
        self.at = now


@dataclass(slots=True)
class Pace:
    """One family's pace."""

    window: float = FIRST
    """Calls that may be on their way before they are let in. Doubles while all are."""
    knocking: int = 0
    """Calls on their way that were not let in yet."""
    unfinished: int = 0
    not_before: float = -math.inf
    buckets: dict[Counted, Bucket] = field(default_factory=dict)
    feeling: Feeling | None = None
    limits_in_a_row: int = 0
    waited_since: float | None = None
    """Since when nobody was let in, where limits are why."""
    _sizes: dict[Counted, float] = field(default_factory=lambda: {"requests": 1.0, "input": 0.0, "output": 0.0})
    _lately: deque[float] = field(default_factory=deque)

    def wait_s(self, now: float) -> float:
        """Seconds until the next call may be made; infinite where another call must be heard of first."""
        waits = [
            self.not_before - now,
            *(bucket.wait_s(self._sizes[what], now) for what, bucket in self.buckets.items()),
        ]
        if self.feeling is not None:
            waits.append(self.feeling.next_at - now)
        wait = max(waits)
        if wait <= 0 and self.knocking >= self.window:
            return math.inf
        return max(0.0, wait)

    def sent(self, now: float) -> None:
        self.knocking += 1
        self.unfinished += 1
        for what, bucket in self.buckets.items():
            bucket.level -= self._sizes[what]
        if self.feeling is not None:
            self.feeling.grow(now)
            self.feeling.next_at = max(now, self.feeling.next_at) + 1 / self.feeling.rate

    def begun(self, headroom: Headroom, now: float) -> None:
        """A call was let in."""
        self.knocking -= 1
        self.window = min(self.window + 1, WIDEST)
        self.limits_in_a_row, self.waited_since = 0, None
        self._lately.append(now)
        while self._lately[0] < now - RECENT_S:
            self._lately.popleft()
        self._heard(headroom, now)

    def turned_away(self) -> None:
        """A call was not let in, for whatever reason."""
        self.knocking -= 1

    def ended(self, usage: Usage | None) -> None:
        self.unfinished -= 1
        if usage is not None:
            said: Mapping[Counted, int] = {"input": usage.input + usage.cache_write, "output": usage.output}
            for what, size in said.items():
                before = self._sizes[what]
                self._sizes[what] = before + LEARNING * (size - before) if before else float(size)

    def limited(self, headroom: Headroom, now: float) -> None:
        """A call met a limit."""
        self.limits_in_a_row += 1
        self.waited_since = now if self.waited_since is None else self.waited_since
        self._heard(headroom, now)
        if not headroom or all(granted.left >= 1 for granted in headroom.values()):
            self._slow_down(now)

    def start_slowly(self) -> None:
        """After nobody was let in: one call first, then twice as many each time."""
        self.window = 1

    def headroom(self, now: float) -> dict[Counted, Room]:
        """What is left, as far as we know."""
        for bucket in self.buckets.values():
            bucket.refill(now)
        return {what: Room(bucket.limit, max(0.0, bucket.level)) for what, bucket in self.buckets.items()}

    def _heard(self, headroom: Headroom, now: float) -> None:
        """What is left by the service's word, less what it has not seen yet."""
        for what, granted in headroom.items():
            unseen = self.unfinished if what == "output" else self.knocking
            level = granted.left - unseen * self._sizes[what]
            bucket = self.buckets.get(what)
            if bucket is None or bucket.limit != granted.limit:
                self.buckets[what] = Bucket(granted.limit, level, max(1.0, granted.left, granted.limit / MINUTE), now)
                continue
            bucket.level, bucket.at, bucket.most = level, now, max(bucket.most, granted.left)

    def _slow_down(self, now: float) -> None:
        if self.feeling is None:
            lately = [at for at in self._lately if at >= now - RECENT_S]
            span = max(1.0, now - lately[0]) if lately else RECENT_S
            met = max(SLOWEST, len(lately) / span)
            self.feeling = Feeling(met, 0.0, now, now)
        feeling = self.feeling
        if now < feeling.slowed_at + AT_ONCE_S:  # those that were on their way together say nothing new
            return
        feeling.grow(now)
        feeling.slowed_at, met = now, feeling.rate
        feeling.rate = max(SLOWEST, met * SHARE_KEPT)
        feeling.step = max(SLOWEST, met - feeling.rate) / REGAINED_S
