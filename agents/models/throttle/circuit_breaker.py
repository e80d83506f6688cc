"""The circuit breaker: closed while calls succeed, open after faults, half-open for one probe at a time.

Pure: the time is passed in.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

Condition = Literal["down", "limited", "refused"]

SHARE = 0.15  # of the time it has been open until the next probe: the end of an outage is noticed at most so late
LONGEST = 10  # times `max_wait_s`: an upper bound for the wait between probes


@dataclass(frozen=True, slots=True)
class Trip:
    """Why and since when the breaker is open."""

    condition: Condition
    why: str
    since: float


@dataclass(slots=True)
class CircuitBreaker:
    """Closed without a `trip`; otherwise open, and half-open while `probing`."""

    scope: str
    """The family of models whose calls it stops; empty: all calls."""
    max_wait_s: float
    """Between two probes, until it has been open for long."""
    trip: Trip | None = None
    probe_at: float = 0.0
    probing: bool = False
    announced: bool = False
    """Whether a notice has said that it is open."""
    announce_probe: bool = False
    """A human waits for the result of the next probe."""
    failures: int = 0
    """In a row, while it is closed."""
    failing_since: float = math.inf
    """When the first of these was asked for."""

    def wait_s(self, now: float) -> float:
        """Seconds until the next probe: infinite while one is under way, 0 while closed."""
        if self.trip is None:
            return 0.0
        return math.inf if self.probing else max(0.0, self.probe_at - now)

    def open(self, trip: Trip, wait_s: float) -> None:
        """Let no call through for `wait_s`."""
        self._reset(trip)
        self.probe_at = trip.since + wait_s

    def stay_open(self, why: str, now: float, wait_s: float) -> None:
        """A probe failed. The longer the breaker has been open, the rarer the probes."""
        if self.trip is not None:
            self.trip = replace(self.trip, why=why)
            self.probe_at = now + min(max(wait_s, SHARE * (now - self.trip.since)), LONGEST * self.max_wait_s)

    def failed(self, asked_at: float) -> None:
        """A call failed. So far that may be chance."""
        self.failures += 1
        self.failing_since = min(self.failing_since, asked_at)

    def answered(self, asked_at: float) -> None:
        """An answer began. One to a call from before those that failed says nothing about the time since."""
        if asked_at >= self.failing_since:
            self._forget_failures()

    def close(self) -> None:
        self._reset(None)
        self._forget_failures()

    def _forget_failures(self) -> None:
        self.failures, self.failing_since = 0, math.inf

    def _reset(self, trip: Trip | None) -> None:
        self.trip, self.probing, self.announced, self.announce_probe = trip, False, False, False
