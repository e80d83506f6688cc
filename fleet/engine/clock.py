"""The clock of a run: setting the machine's clock moves none of its waits, limits and budgets."""

import time
from dataclasses import dataclass, field

STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Also counts the seconds while the machine sleeps: a retry due at two o'clock starts then, if the machine is awake."""


def _zero() -> float:
    return time.time() - time.clock_gettime(STEADY)


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's time when this was made, plus the seconds that have passed since then."""

    zero: float = field(default_factory=_zero)

    def now(self) -> float:
        return self.zero + time.clock_gettime(STEADY)
