"""When the simulated service refuses a call that is correct: rate limits and fault windows. The time is passed in."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import Random

from agents.simulated.script import FaultWindow, Limits

MINUTE = 60.0


class Bucket:
    """One limit a minute, which refills evenly."""

    def __init__(self, limit: float, burst_s: float, now: float) -> None:
        self.limit = limit
        self.full = max(1.0, limit * burst_s / MINUTE)
        self.level, self._at = self.full, now

    def refill(self, now: float) -> None:
        minutes, self._at = max(0.0, now - self._at) / MINUTE, now
        self.level = min(self.full, self.level + minutes * self.limit)

    def wait_s(self, need: float) -> float | None:
        """The seconds until this much is there; None if it is."""
        missing = min(need, self.full) - self.level
        return missing * MINUTE / self.limit if missing > 0 else None


class Limiter:
    """The limits of one family of models: requests, and tokens in and out. `max_tokens` counts nothing."""

    def __init__(self, limits: Limits, now: float) -> None:
        output = limits.output_tokens_per_minute or limits.tokens_per_minute
        self._limits = limits
        self._requests = Bucket(limits.requests_per_minute, limits.burst_s, now)
        self._input = Bucket(limits.tokens_per_minute, limits.burst_s, now)
        self._output = Bucket(output, limits.burst_s, now)

    def admit(self, now: float, tokens: int) -> float | None:
        """None if the request is admitted; otherwise the seconds until one may be."""
        for bucket in (self._requests, self._input, self._output):
            bucket.refill(now)
        needs = ((self._requests, 1.0), (self._input, float(tokens)), (self._output, 1.0))
        wait = next((wait for bucket, need in needs if (wait := bucket.wait_s(need)) is not None), None)
        if wait is None:
            self._requests.level -= 1
            self._input.level = max(0.0, self._input.level - tokens)
        return wait

    def answered(self, tokens: int) -> None:
        """An answer of this length was begun."""
        self._output.level = max(0.0, self._output.level - tokens)

    def headers(self, today: datetime) -> dict[str, str]:
        """The current `anthropic-ratelimit-*` headers."""
        if not self._limits.named:
            return {}
        buckets = {"requests": self._requests, "tokens": self._input, "input-tokens": self._input}
        headers: dict[str, str] = {}
        for kind, bucket in {**buckets, "output-tokens": self._output}.items():
            full = today + timedelta(seconds=(bucket.limit - bucket.level) * MINUTE / bucket.limit)
            headers[f"anthropic-ratelimit-{kind}-limit"] = str(int(bucket.limit))
            headers[f"anthropic-ratelimit-{kind}-remaining"] = str(int(bucket.level))
            headers[f"anthropic-ratelimit-{kind}-reset"] = full.strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers


class FamilyLimits:
    """The limits of each family of models, which share them."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self._limits, self._now = limits, now
        self._families: dict[str, Limiter] = {}

    def admit(self, line: str, tokens: int) -> float | None:
        return self._of(line).admit(self._now(), tokens)

    def answered(self, line: str, tokens: int) -> None:
        self._of(line).answered(tokens)

    def headers(self, line: str, today: datetime) -> dict[str, str]:
        return self._of(line).headers(today)

    def _of(self, line: str) -> Limiter:
        if line not in self._families:
            self._families[line] = Limiter(self._limits, self._now())
        return self._families[line]


class FaultSchedule:
    """The fault windows of a script, counted from the first call: a share of the calls within one fails."""

    def __init__(self, windows: Sequence[FaultWindow], seed: int) -> None:
        self._windows = windows
        self._chance = Random(seed)  # noqa: S311 - faults need no secret
        self._began: float | None = None
        self._calls = 0

    def fault_at(self, now: float) -> FaultWindow | None:
        """The window whose fault hits a call made now, if one does."""
        self._began = now if self._began is None else self._began
        self._calls += 1
        for window in self._windows:
            if self._is_within(window, now - self._began) and self._chance.random() < window.share:
                return window
        return None

    def _is_within(self, window: FaultWindow, passed: float) -> bool:
        last = self._calls if window.last_call is None else window.last_call
        return window.from_s <= passed < window.to_s and window.first_call <= self._calls <= last
