"""Replays a run from its journal at any speed: yields each fact when its time has come.

Long gaps between facts (no engine, an open question) are shortened.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from dashboards.runs.ports import FactFeed
from fleet.core.state import facts as f
from fleet.core.state.facts import Fact

LONGEST_GAP_S = 15.0
SLOWEST, FASTEST = 0.125, 1024.0
CHUNK = 10_000  # facts
NEAR_S = 0.5  # closer than this is here


class Replay:
    """The facts of a run on a shortened timeline that starts at 0."""

    def __init__(self, feed: FactFeed, clock: Callable[[], float], speed: float) -> None:
        self._clock = clock
        self.speed = speed
        self.paused = False
        self._facts: list[tuple[int, Fact]] = []
        while chunk := feed.facts(self._facts[-1][0] if self._facts else 0, CHUNK):
            self._facts += chunk
        self._places: list[float] = []
        """The position of each fact on the timeline."""
        self.failures: list[float] = []
        """The positions of attempts and batches that failed, in order."""
        self.landings: list[float] = []
        place, before = 0.0, self._facts[0][1].at if self._facts else 0.0
        for _, fact in self._facts:
            place += min(max(0.0, fact.at - before), LONGEST_GAP_S)
            before = max(before, fact.at)
            self._places.append(place)
            if isinstance(fact, f.AttemptFailed):
                self.failures.append(place)
            elif isinstance(fact, f.BatchTested) and fact.landed:
                self.landings.append(place)
        self._played, self._since = 0.0, clock()

    # ---- the timeline

    @property
    def position(self) -> float:
        """How many seconds of the timeline were played so far."""
        return self._played if self.paused else self._played + (self._clock() - self._since) * self.speed

    @property
    def length(self) -> float:
        return self._places[-1] if self._places else 0.0

    @property
    def over(self) -> bool:
        return self.position >= self.length

    def now(self) -> float:
        """The time of day at this position."""
        played = bisect_right(self._places, self.position)
        if not played:
            return self._facts[0][1].at if self._facts else self._clock()
        since = min(self.position - self._places[played - 1], LONGEST_GAP_S)
        return self._facts[played - 1][1].at + (since if played < len(self._facts) else 0.0)

    def __str__(self) -> str:
        how = "ended" if self.over else "paused" if self.paused else f"{self.speed:g}x"
        return f"REPLAY {how} {min(self.position, self.length):.0f}/{self.length:.0f} s"

    def pause(self, paused: bool) -> None:
        self._settle()
        self.paused = paused

    def faster(self, factor: float) -> None:
        self._settle()
        self.speed = min(FASTEST, max(SLOWEST, self.speed * factor))

    def step(self) -> None:
        """Go to the next fact and pause."""
        self._settle()
        self.paused = True
        following = bisect_right(self._places, self._played)
        if following < len(self._places):
            self._played = self._places[following]

    def jump(self, seconds: float) -> None:
        """Move by `seconds`. After a move back, the facts must be read from the beginning again."""
        self._settle()
        self._played = min(self.length, max(0.0, self._played + seconds))

    def next_failure(self, by: int) -> float:
        """The position of the failure after this one, or of the one before it; of an end where there is none."""
        here = self.position
        if by > 0:
            return next((place for place in self.failures if place > here + NEAR_S), self.length)
        return next((place for place in reversed(self.failures) if place < here - NEAR_S), 0.0)

    def _settle(self) -> None:
        self._played, self._since = min(self.position, self.length), self._clock()

    # ---- the facts played so far

    @property
    def alive(self) -> bool:
        return not self.over

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        played = bisect_right(self._places, self.position)
        first = bisect_right(self._facts, after, key=lambda item: item[0])
        return self._facts[first : min(played, first + limit)]

    def changed(self) -> bool:
        return True
