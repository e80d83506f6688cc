"""A run played again from its journal, at a speed of one's choice: a feed that tells each fact when its time has come.

Time in which nothing happened for long (the engine was down, a human was asked) is shortened.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from dashboards.terminal.ports import Feed
from fleet.core.facts import Fact
from fleet.core.plan import Plan
from fleet.core.requests import Request

LONGEST_GAP_S = 15.0
SLOWEST, FASTEST = 0.125, 1024.0


class Replay:
    """Plays `feed`. Nothing can be asked of a run that is only played."""

    def __init__(self, feed: Feed, clock: Callable[[], float], speed: float) -> None:
        self._feed, self._clock = feed, clock
        self.speed = speed
        self.paused = False
        self._facts: list[tuple[int, Fact]] = []
        self._places: list[float] = []
        """Where each fact stands on the shortened time line, from 0."""
        self._load()
        self._played, self._since = 0.0, clock()

    def _load(self) -> None:
        while chunk := self._feed.read(self._facts[-1][0] if self._facts else 0, 10_000):
            self._facts += chunk
        place, before = 0.0, self._facts[0][1].at if self._facts else 0.0
        for _, fact in self._facts:
            place += min(max(0.0, fact.at - before), LONGEST_GAP_S)
            before = max(before, fact.at)
            self._places.append(place)

    # ---- the time line

    @property
    def position(self) -> float:
        """Seconds of the shortened time line that were played."""
        return self._played if self.paused else self._played + (self._clock() - self._since) * self.speed

    @property
    def length(self) -> float:
        return self._places[-1] if self._places else 0.0

    @property
    def over(self) -> bool:
        return self.position >= self.length

    def now(self) -> float:
        """The time it was then."""
        told = bisect_right(self._places, self.position)
        if not told:
            return self._facts[0][1].at if self._facts else self._clock()
        since = min(self.position - self._places[told - 1], LONGEST_GAP_S)
        return self._facts[told - 1][1].at + (since if told < len(self._facts) else 0.0)

    def pause(self, paused: bool) -> None:
        self._settle()
        self.paused = paused

    def faster(self, factor: float) -> None:
        self._settle()
        self.speed = min(FASTEST, max(SLOWEST, self.speed * factor))

    def step(self) -> None:
        """To the next fact, and stop there."""
        self._settle()
        self.paused = True
        told = bisect_right(self._places, self._played)
        self._played = self._places[min(told, len(self._places) - 1)] if self._places else 0.0

    def jump(self, seconds: float) -> bool:
        """So many seconds on, or back; True where what was told must be told from the beginning."""
        self._settle()
        self._played = min(self.length, max(0.0, self._played + seconds))
        return seconds < 0

    def _settle(self) -> None:
        self._played, self._since = min(self.position, self.length), self._clock()

    # ---- the feed

    @property
    def run(self) -> str:
        return self._feed.run

    @property
    def alive(self) -> bool:
        return not self.over

    def read(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        told = bisect_right(self._places, self.position)
        first = bisect_right(self._facts, after, key=lambda item: item[0])
        return self._facts[first : min(told, first + limit)]

    def changed(self) -> bool:
        return True

    def ask(self, request: Request) -> None:
        del request

    def last_words(self) -> str:
        return ""

    def transcript(self, name: str, number: int) -> Path:
        return self._feed.transcript(name, number)

    def log(self, name: str) -> Path:
        return self._feed.log(name)

    async def diff(self, base: str, commit: str) -> str | None:
        return await self._feed.diff(base, commit)

    async def copy(self, commit: str, into: Path) -> str | None:
        return await self._feed.copy(commit, into)

    def resume(self) -> str | None:
        return "this is a replay; `fleet resume` goes on with the run itself"

    def read_plan(self, path: Path) -> Plan | str:
        return self._feed.read_plan(path)

    def write_plan(self, plan: Plan, path: Path) -> None:
        self._feed.write_plan(plan, path)
