"""The rate-limit headers, and when a request is one too many. A bucket that refills evenly; the clock is handed in."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.simulated.script import Limits

MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Spare:
    """What is left, when that was."""

    requests: float
    tokens: float
    at: float


class Gauge:
    """How much of the limits is used."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._most = Spare(self._full(limits.requests_per_minute), self._full(limits.tokens_per_minute), now)
        self._spare = self._most

    def _full(self, a_minute: int) -> float:
        return max(1.0, a_minute * self._limits.burst_s / MINUTE)

    def admit(self, now: float, tokens: int) -> float | None:
        """None where the request may pass; otherwise the seconds until one may."""
        spare = self._refilled(now)
        if spare.requests < 1:
            self._spare = spare
            return (1 - spare.requests) * MINUTE / self._limits.requests_per_minute
        if spare.tokens < min(tokens, self._most.tokens):
            self._spare = spare
            return (tokens - spare.tokens) * MINUTE / self._limits.tokens_per_minute
        self._spare = Spare(spare.requests - 1, max(0.0, spare.tokens - tokens), now)
        return None

    def headers(self, today: datetime) -> dict[str, str]:
        """`anthropic-ratelimit-*` as it stands now."""
        if not self._limits.named:
            return {}
        kinds = {
            "requests": (self._limits.requests_per_minute, self._spare.requests),
            "tokens": (self._limits.tokens_per_minute, self._spare.tokens),
            "input-tokens": (self._limits.tokens_per_minute, self._spare.tokens),
            "output-tokens": (self._limits.tokens_per_minute, self._spare.tokens),
        }
        said: dict[str, str] = {}
        for kind, (limit, spare) in kinds.items():
            full = today + timedelta(seconds=(limit - spare) * MINUTE / limit)
            said[f"anthropic-ratelimit-{kind}-limit"] = str(limit)
            said[f"anthropic-ratelimit-{kind}-remaining"] = str(int(spare))
            said[f"anthropic-ratelimit-{kind}-reset"] = full.strftime("%Y-%m-%dT%H:%M:%SZ")
        return said

    def _refilled(self, now: float) -> Spare:
        passed = max(0.0, now - self._spare.at) / MINUTE
        return Spare(
            min(self._most.requests, self._spare.requests + passed * self._limits.requests_per_minute),
            min(self._most.tokens, self._spare.tokens + passed * self._limits.tokens_per_minute),
            now,
        )
