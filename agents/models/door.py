"""A door that shuts when nobody gets through, and how often one caller may then knock. Pure: the time is handed in."""

import math
from dataclasses import dataclass, replace
from typing import Literal

Condition = Literal["down", "limited", "refused"]

SHARE = 0.15  # of the time it has been shut, until the next knock: so much of an outage may be noticed late
LONGEST = 10  # times the longest wait: however long it has been shut, someone looks


@dataclass(frozen=True, slots=True)
class Shut:
    """Why nobody gets through, and since when."""

    condition: Condition
    why: str
    since: float


@dataclass(slots=True)
class Door:
    """Open, or shut with one caller at a time knocking."""

    longest_s: float
    """Between two knocks, while it has not been shut for long."""
    shut: Shut | None = None
    knock_at: float = 0.0
    knocking: bool = False
    told: bool = False
    """Whether people were told that it is shut."""
    asked_for: bool = False
    """A human wants to know what the next knock brings."""
    faults: int = 0
    """In a row, while it is open."""

    def wait_s(self, now: float) -> float:
        """Seconds until someone may knock; infinite while somebody does; 0 where it is open."""
        if self.shut is None:
            return 0.0
        return math.inf if self.knocking else max(0.0, self.knock_at - now)

    def close(self, shut: Shut, wait_s: float) -> None:
        """Nobody gets through from now on."""
        self.shut, self.knocking, self.told, self.asked_for = shut, False, False, False
        self.knock_at = shut.since + wait_s

    def stay_shut(self, why: str, now: float, wait_s: float) -> None:
        """A knock was answered with no. The longer it has been shut, the rarer the knocks."""
        if self.shut is None:
            return
        self.shut = replace(self.shut, why=why)
        self.knock_at = now + min(max(wait_s, SHARE * (now - self.shut.since)), LONGEST * self.longest_s)

    def open(self) -> None:
        self.shut, self.knocking, self.told, self.asked_for, self.faults = None, False, False, False, 0
