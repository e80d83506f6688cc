"""The time a run goes by: no wait, limit or budget of it moves when somebody sets the machine's clock."""

import time
from dataclasses import dataclass, field

PASSING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts the seconds while the machine sleeps, too: what is to begin at two o'clock does, where it woke up before."""


def _before() -> float:
    return time.time() - time.clock_gettime(PASSING)


@dataclass(frozen=True, slots=True)
class SystemClock:
    """What the machine's clock said when this was made, and from then on the seconds that passed."""

    zero: float = field(default_factory=_before)

    def now(self) -> float:
        return self.zero + time.clock_gettime(PASSING)
