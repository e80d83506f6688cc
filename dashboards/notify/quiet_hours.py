"""Hours of the day in which nothing is sent. What arises then is sent afterwards, if it still holds."""

import re
from dataclasses import dataclass
from datetime import datetime

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one minute of the day to another; the end may be on the next day."""

    start: int
    end: int

    def cover(self, at: datetime) -> bool:
        minute = at.hour * 60 + at.minute
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def read_quiet_hours(text: str) -> QuietHours | None:
    """`22:00-07:00`; None for an empty text. Raises `ValueError`."""
    if not text:
        return None
    match = _HOURS.fullmatch(text)
    if match is None:
        raise ValueError("must be like 22:00-07:00")
    first, second, third, fourth = map(int, match.groups())
    return QuietHours(first * 60 + second, third * 60 + fourth)
