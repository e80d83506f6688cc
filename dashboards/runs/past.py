"""A run as it was after any of its facts, for a replay that goes forwards and backwards.

The journal is read once, in slices. A copy of the state is kept now and then, so that every moment is a few facts away
from one: states are frozen and share what did not change.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from time import perf_counter

from dashboards.runs.ports import FactFeed, Feed
from dashboards.runs.run_follower import WatchedRun
from fleet.core.state import facts as f
from fleet.core.state.state import RunState

APART = 1_000  # facts between two copies


class Past:
    """The facts of a run by their places: the first one has place 1."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._seqs: list[int] = []
        self._times: list[float] = []
        """Never less than the one before, whatever the clock of a machine did."""
        self._events: list[int] = []
        """The places of the facts that are events."""
        self._reader = _Reader(feed, self)
        self._copies: list[WatchedRun] = [self._reader.fork(feed, _no_time)]
        self.loaded = False

    def __len__(self) -> int:
        return len(self._seqs)

    def read(self, seconds: float) -> None:
        """Read further for about so long, or to the end."""
        until = perf_counter() + seconds
        self.loaded = False
        while not self.loaded and perf_counter() < until:
            before = self._reader.seq
            self._reader.catch_up(0)  # one slice
            self.loaded = self._reader.seq == before
            if self._reader.seq - self._copies[-1].seq >= APART:
                self._copies.append(self._reader.fork(self._feed, _no_time))

    def at(self, place: int) -> WatchedRun:
        """The run after the fact at a place."""
        seq, now = self._seqs[place - 1], self._times[place - 1]
        nearest = self._copies[bisect_right(self._copies, seq, key=lambda copy: copy.seq) - 1]
        run = nearest.fork(_Until(self._feed, seq), lambda: now)
        run.catch_up(float("inf"))
        run.alive = run.state is not None and run.state.engine_since is not None
        return run

    def moment(self, place: int) -> float:
        """How many seconds after the first fact."""
        return self._times[place - 1] - self._times[0]

    def place_at(self, seconds: float) -> int:
        """The last fact within so many seconds of the first one."""
        return max(1, bisect_right(self._times, self._times[0] + seconds))

    def event_before(self, place: int) -> int:
        found = bisect_left(self._events, place)
        return self._events[found - 1] if found else 1

    def event_after(self, place: int) -> int:
        found = bisect_right(self._events, place)
        return self._events[found] if found < len(self._events) else len(self)

    def took(self, seq: int, at: float, *, is_event: bool) -> None:
        """Called for each fact that is read."""
        self._seqs.append(seq)
        self._times.append(max(at, self._times[-1] if self._times else at))
        if is_event:
            self._events.append(len(self._seqs))


class _Reader(WatchedRun):
    """Reads all facts, and notes where and when each of them is."""

    def __init__(self, feed: Feed, past: Past) -> None:
        super().__init__(feed, _no_time, facts=_Until(feed, None))
        self._past = past

    def _take(self, before: RunState | None, fact: f.Fact, after: RunState) -> None:
        count = self._event_count
        super()._take(before, fact, after)
        self._past.took(self.seq, fact.at, is_event=self._event_count > count)


class _Until:
    """The facts of a run up to one of them. Says nothing about news, which it would take from other readers."""

    alive = False

    def __init__(self, feed: FactFeed, last: int | None) -> None:
        self._feed, self._last = feed, last

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, f.Fact]]:
        return [each for each in self._feed.facts(after, limit) if self._last is None or each[0] <= self._last]

    def changed(self) -> bool:
        return True


def _no_time() -> float:
    return 0.0
