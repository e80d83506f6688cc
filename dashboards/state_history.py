"""Replay a run from its journal at any speed.

Long gaps between facts, such as an interruption or an open question, are shortened.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

from dashboards.text.event_text import events_of, transcript_lines
from fleet.core.base.output import parse_json
from fleet.core.facts import facts as f
from fleet.core.facts.facts import CheckRun, Fact
from fleet.read.follow import FactFeed, Feed, FollowedRun, Step

LONGEST_GAP_S = 15.0
SLOWEST, FASTEST = 0.125, 1024.0
CHUNK = 10_000  # facts
NEAR_S = 0.5  # a closer failure counts as the current position


class RunReplay:
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
        """Seconds of the timeline played so far."""
        return self._played if self.paused else self._played + (self._clock() - self._since) * self.speed

    @property
    def length(self) -> float:
        return self._places[-1] if self._places else 0.0

    @property
    def over(self) -> bool:
        return self.position >= self.length

    def now(self) -> float:
        """The time of the run at this position, in seconds since 1970."""
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
        """Move by `seconds`. After a move back, the facts must be read again from the start."""
        self._settle()
        self._played = min(self.length, max(0.0, self._played + seconds))

    def next_failure(self, by: int) -> float:
        """The position of the next or previous failure, or of the end of the timeline if there is none."""
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


# ---- past ------------------------------------------------------------------------------------------------------------
# A run after any of its facts, for a replay in both directions.
#
# The journal is read once, in slices. Copies of the state are kept at intervals, so that every moment is only a few
# facts after a copy. States are frozen and share unchanged parts.


APART = 1_000  # facts between two copies


class Past:
    """The facts of a run by their places, counted from 1."""

    def __init__(self, feed: Feed, *, apart: int = APART) -> None:
        self._feed, self._apart = feed, apart
        self._seqs: list[int] = []
        self._times: list[float] = []
        """Times in ascending order, even if the clock of a machine was changed."""
        self._events: list[int] = []
        """The places of facts with events."""
        self._events_read = 0
        self._reader = FollowedRun(feed, _no_time, facts=_Until(feed, None), tell=events_of, take=self._took)
        self._copies: list[FollowedRun] = [self._reader.fork(feed, _no_time)]
        self.loaded = False

    def __len__(self) -> int:
        return len(self._seqs)

    def read(self, seconds: float) -> None:
        """Read further for about `seconds`, or to the end."""
        until = perf_counter() + seconds
        self.loaded = False
        while not self.loaded and perf_counter() < until:
            before = self._reader.seq
            self._reader.catch_up(0)  # one slice
            self.loaded = self._reader.seq == before
            if self._reader.seq - self._copies[-1].seq >= self._apart:
                self._copies.append(self._reader.fork(self._feed, _no_time))

    def at(self, place: int) -> FollowedRun:
        """The run after the fact at a place."""
        seq, now = self._seqs[place - 1], self._times[place - 1]
        nearest = self._copies[bisect_right(self._copies, seq, key=lambda copy: copy.seq) - 1]
        run = nearest.fork(_Until(self._feed, seq), lambda: now)
        run.catch_up()
        run.alive = run.state is not None and run.state.engine_since is not None
        return run

    def moment(self, place: int) -> float:
        """Seconds after the first fact."""
        return self._times[place - 1] - self._times[0]

    def place_at(self, seconds: float) -> int:
        """The last fact within `seconds` of the first one."""
        return max(1, bisect_right(self._times, self._times[0] + seconds))

    def event_before(self, place: int) -> int:
        found = bisect_left(self._events, place)
        return self._events[found - 1] if found else 1

    def event_after(self, place: int) -> int:
        found = bisect_right(self._events, place)
        return self._events[found] if found < len(self._events) else len(self)

    def _took(self, step: Step) -> None:
        at, count = step.fact.at, self._reader.event_count
        self._seqs.append(self._reader.seq)
        self._times.append(max(at, self._times[-1] if self._times else at))
        if count > self._events_read:
            self._events.append(len(self._seqs))
        self._events_read = count


class _Until:
    """The facts of a run up to a place. Reports no news, because that would take them from other readers."""

    alive = False

    def __init__(self, feed: FactFeed, last: int | None) -> None:
        self._feed, self._last = feed, last

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, f.Fact]]:
        return [each for each in self._feed.facts(after, limit) if self._last is None or each[0] <= self._last]

    def changed(self) -> bool:
        return True


def _no_time() -> float:
    return 0.0


# ---- run files -------------------------------------------------------------------------------------------------------
# The files of a run for all UIs: conversations as they grow, and the output of checks.


LOG_BYTES = 400_000
BYTES = 1_000_000  # of a conversation, per read
ACCOUNTING = frozenset({"request_id", "usage", "stop_reason"})  # fields of an entry shown only by `fleet logs`


class TranscriptTail:
    """Follows the file of one conversation."""

    def __init__(self, path: Path, *, last: int | None = None) -> None:
        """Start `last` bytes before the end, or at the start of the file."""
        self._path, self._offset, self._rest = path, 0, b""
        if last is not None and path.is_file():
            self._offset = max(0, path.stat().st_size - last)

    def new(self) -> Iterator[list[str]]:
        """The lines of each entry written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(BYTES)
        except (OSError, ValueError):  # ValueError: not a file name
            return
        self._offset += len(data)
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            yield list(_lines(line))


def _lines(line: bytes) -> Iterator[str]:
    try:
        entry = parse_json(line)
    except ValueError:  # a line cut off by a kill, or the first one of a tail
        return
    if isinstance(entry, dict):
        yield from transcript_lines([{name: each for name, each in entry.items() if name not in ACCOUNTING}])


def check_output(feed: Feed, check: CheckRun) -> str:
    """The start of the check's log, or the end of its output if no log was kept."""
    if not check.log:
        return check.output
    try:
        with feed.log(check.log).open("rb") as file:
            return file.read(LOG_BYTES).decode("utf-8", "replace") or check.output
    except (OSError, ValueError):  # ValueError: not a file name
        return check.output
