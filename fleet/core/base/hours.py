"""Hours of the day in local time: quiet hours for notifications and for runs."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

BY_HOURS = "run.not_between"
"""Author recorded in facts when quiet hours pause or unpause a run."""
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Hours:
    """A range between two minutes of the day. The end may be on the next day."""

    start: int
    end: int

    def cover(self, at: datetime) -> bool:
        minute = at.hour * 60 + at.minute
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def since(self, at: datetime) -> datetime | None:
        """Return the start of the range that contains `at`, or None outside the range."""
        if not self.cover(at):
            return None
        begin = at.replace(hour=self.start // 60, minute=self.start % 60, second=0, microsecond=0)
        return begin if begin <= at else begin - timedelta(days=1)


def read_hours(text: str) -> Hours | None:
    """Parse `22:00-07:00`. Return None for an empty text, and raise `ValueError` for an invalid one."""
    if not text:
        return None
    match = _HOURS.fullmatch(text)
    if match is None:
        raise ValueError("must have the form 22:00-07:00")
    first, second, third, fourth = map(int, match.groups())
    return Hours(first * 60 + second, third * 60 + fourth)
