"""Runs as the terminal UI follows them: the state of a run, and the events and batches that its state no longer holds.

Facts are read in slices, so that the screen reacts to keys while a long journal loads.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Protocol, TypeVar, cast

from dashboards.text.event_text import event_text
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import FactSource
from fleet.core.plans.plan import Plan
from fleet.core.policy.requests import Request
from fleet.errors import FleetError
from fleet.read.queue import PastBatch
from fleet.read.run import RunSnapshot
from fleet.read.run_reader import RunReader, Step

# ---- ports -----------------------------------------------------------------------------------------------------------
# What the terminal UI needs from outside: runs to read and to send requests to. It opens no journal itself.


class FactFeed(FactSource, Protocol):
    """The facts of a run, as they are written or as they are replayed."""

    @property
    def alive(self) -> bool:
        """Whether a process is running it."""
        ...


class Feed(FactFeed, Protocol):
    """One run: its journal, its inbox, and its files."""

    @property
    def run(self) -> str: ...

    def close(self) -> None:
        """Release what it reads from. Afterwards only its files can be read."""
        ...

    def ask(self, request: Request) -> None:
        """Put a request into the inbox. The caller has checked that it is valid."""
        ...

    def last_words(self) -> str:
        """The last output of an engine in the background; empty if there is none."""
        ...

    def transcript(self, name: str, number: int) -> Path:
        """The file of a conversation; it may not exist."""
        ...

    def log(self, name: str) -> Path:
        """The file with a check's output; it may not exist."""
        ...

    async def diff(self, base: Sha, commit: Sha) -> str | None:
        """The patch between two commits; None if they are no longer in the store."""
        ...

    async def copy(self, commit: Sha, into: Path) -> str | None:
        """Check `commit` out into an empty folder; return an error message if that fails."""
        ...

    def resume(self) -> str | None:
        """Resume the run in the background; return an error message if that fails."""
        ...

    def read_plan(self, path: Path) -> Plan | str:
        """The plan in a file, or an error message."""
        ...

    def write_plan(self, plan: Plan, path: Path) -> None: ...


class Library(Protocol):
    """All runs of a state directory."""

    def names(self) -> Sequence[str]:
        """The names of all runs, the latest first."""
        ...

    def open(self, run: str) -> Feed:
        """It is closed with the library, unless whoever opened it has no more use for it earlier."""
        ...


# ---- run follower ----------------------------------------------------------------------------------------------------


EVENTS = 20_000  # kept in memory; `fleet watch --plain` prints all of them
BATCHES = 2_000
RUNS = 30  # the latest ones are followed
Made = TypeVar("Made")


class FollowedRun(RunReader):
    """One run, as far as its journal was read."""

    def __init__(
        self,
        feed: Feed,
        clock: Callable[[], float],
        *,
        facts: FactFeed | None = None,
        take: Callable[[Step], None] | None = None,
    ) -> None:
        super().__init__(take)
        self.feed = feed
        self.clock = clock
        self._facts = facts or feed
        self.alive = False
        """Whether a process was running it when someone last looked."""

    @property
    def snapshot(self) -> RunSnapshot | None:
        """The run now; None before its first fact was read."""
        return self.snapshot_at(self.now, alive=self.alive)

    @property
    def now(self) -> float:
        """The current time; in a run that no process is running, the time of its last fact: nothing grows older."""
        if self.alive or self.state is None:
            return self.clock()
        return self.state.last_at

    @property
    def working(self) -> int:
        """How many agents are at work."""
        return self.state.working() if self.alive and self.state is not None else 0

    def catch_up(self, seconds: float) -> bool:
        """Read new facts for at most `seconds`; return whether there were any."""
        until = perf_counter() + seconds
        return self.read(self._facts, lambda: perf_counter() <= until)

    def look(self) -> None:
        """See whether a process is running it."""
        self.alive = self._facts.alive


class OtherRuns:
    """All runs but the current one, which are read a little at a time. A run that can't be read is left out."""

    def __init__(self, library: Library, clock: Callable[[], float]) -> None:
        self._library, self._clock = library, clock
        self._runs: dict[str, FollowedRun | None] = {}
        """The latest first; None for a run that can't be read."""
        self._turn = 0

    def look(self, seconds: float, *, but: str) -> None:
        """Continue where the last look ended, for about `seconds`. `but` is the current run."""
        until = perf_counter() + seconds
        names = [name for name in self._library.names()[:RUNS] if name != but]
        runs = {name: self._runs[name] if name in self._runs else self._open(name) for name in names}
        for name, run in self._runs.items():
            if name not in runs and run is not None:
                run.feed.close()
        self._runs = runs
        for _ in names:
            name = names[self._turn % len(names)]
            self._read(name, until - perf_counter())
            if perf_counter() >= until:
                break
            self._turn += 1

    def _open(self, name: str) -> FollowedRun | None:
        try:
            return FollowedRun(self._library.open(name), self._clock)
        except FleetError:
            return None

    def _read(self, name: str, seconds: float) -> None:
        run = self._runs[name]
        if run is not None:
            try:
                run.look()
                run.catch_up(seconds)
            except FleetError:
                run.feed.close()
                self._runs[name] = None

    def readable(self) -> list[FollowedRun]:
        """The runs that can be read, the latest first."""
        return [run for run in self._runs.values() if run is not None]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as one line of text."""

    at: float
    text: str
    tone: str
    about: SubtaskId | None
    """The subtask it is about."""
    key: str
    """Unique for each event, so that a cursor stays on it; after the colon the subtask that it opens."""
    is_routine: bool
    """Whether it happens to every subtask, or continues the line before; the overview leaves it out."""
    members: tuple[SubtaskId, ...] = ()
    """The subtasks of a batch that it is about."""
    more: int = 0
    """How many lines continue it."""


class WatchedRun(FollowedRun):
    """A run with its events and its batches."""

    def __init__(self, feed: Feed, clock: Callable[[], float], *, facts: FactFeed | None = None) -> None:
        super().__init__(feed, clock, facts=facts, take=self._take)
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.batches: deque[PastBatch] = deque(maxlen=BATCHES)
        self._landed_at: list[float] = []
        """In ascending order."""
        self._event_count = 0
        self._derived: dict[str, tuple[object, object]] = {}

    def derive(self, name: str, source: object, make: Callable[[], Made]) -> Made:
        """What `make` makes of a frozen value, kept until the value is another one."""
        if name not in self._derived or self._derived[name][0] is not source:
            self._derived[name] = (source, make())
        return cast("Made", self._derived[name][1])

    def fork(self, facts: FactFeed, clock: Callable[[], float]) -> "WatchedRun":
        """Another one that has read as much, and continues with these facts."""
        twin = WatchedRun(self.feed, clock, facts=facts)
        twin.continue_from(self)
        twin.events, twin.batches = self.events.copy(), self.batches.copy()
        twin._landed_at, twin._event_count = self._landed_at.copy(), self._event_count
        return twin

    def events_about(self, subtask: SubtaskId) -> list[Event]:
        return [event for event in self.events if event.about == subtask or subtask in event.members]

    def commits_an_hour(self) -> float | None:
        """How fast work lands, over the time the run was at work; None before the first commit."""
        seconds = self.state.seconds(self.now) if self.state is not None else 0.0
        return len(self._landed_at) * 3600 / seconds if self._landed_at and seconds > 0 else None

    def landings(self, bins: int) -> list[int]:
        """How many subtasks landed in each of `bins` equal parts of the time since the start."""
        counts = [0] * bins
        if self.state is not None:
            started_at = self.state.started_at
            span = max(self.now - started_at, self.state.last_at - started_at, 1e-9)
            edges = (started_at + span * number / bins for number in range(1, bins))
            places = [0, *(bisect_left(self._landed_at, edge) for edge in edges), len(self._landed_at)]
            counts = [after - before for before, after in pairwise(places)]
        return counts

    def _take(self, step: Step) -> None:
        fact = step.fact
        if isinstance(fact, f.ModelCalled):  # by far the most frequent fact, and never an event
            return
        if isinstance(fact, f.BatchTested):
            self._landed_at += [step.at] * len(fact.landed)
            self.batches.append(step.batch(fact))
        about = getattr(fact, "subtask", None) or getattr(fact, "about", None)
        members = _members(fact)
        lines = (event_text(step.run, fact) or "").splitlines()
        for place, line in enumerate(lines):
            self._event_count += 1
            key = f"e{self._event_count}:{about if step.has_subtask(about) else ''}"
            routine, more = place > 0 or _is_routine(fact), 0 if place else len(lines) - 1
            tone = _tone(fact, line)
            self.events.append(Event(step.at, line, tone, about, key, routine, members, more))


def _members(fact: f.Fact) -> tuple[SubtaskId, ...]:
    """The subtasks that a batch landed or sent back."""
    if not isinstance(fact, f.BatchTested):
        return ()
    return (*(each.subtask for each in fact.landed), *(each.subtask for each in fact.ejected))


def _is_routine(fact: f.Fact) -> bool:
    return isinstance(fact, f.AttemptCommitted) or (isinstance(fact, f.AttemptStarted) and fact.strategy == "first")


def _tone(fact: f.Fact, line: str) -> str:
    match fact:
        case f.AttemptFailed() | f.PlannerFailed() | f.PublishFailed() | f.EngineStopped():
            return "bad"
        case f.BatchTested():
            return "good" if fact.landed and line.startswith("landed") else "bad"
        case f.RunEnded():
            return "good" if fact.ending == "landed" else "bad"
        case f.QuestionAsked():
            return "attention"
        case _:
            return "attention" if line.startswith("QUESTION") else ""
