"""A run as it is watched: its state, and what its story leaves behind that the state forgets. Knows no screen.

Facts are taken in slices, so that a long journal never stops the keys from being heard.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from dashboards.terminal.ports import Feed
from dashboards.words import said
from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.core.state import RunState

SLICE = 200  # facts read at once
EVENTS = 20_000  # kept; older ones are in the journal
BATCHES = 2_000
Tone = str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in words."""

    number: int
    at: float
    text: str
    tone: Tone
    about: str | None
    routine: bool = False
    """Whether it is what always happens: the overview leaves it out."""


@dataclass(frozen=True, slots=True)
class Tested:
    """A batch that was tested, and what came of it."""

    number: int
    members: tuple[str, ...]
    alone: bool
    formed_at: float
    at: float
    landed: tuple[str, ...]
    ejected: tuple[tuple[str, str], ...]
    red: bool
    suspects: tuple[str, ...]


class Watched:
    """Follows one run."""

    def __init__(self, feed: Feed, clock: Callable[[], float]) -> None:
        self.feed = feed
        self.clock = clock
        self.state: RunState | None = None
        self.seq = 0
        self._told = 0
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.batches: deque[Tested] = deque(maxlen=BATCHES)
        self.landed_at: list[float] = []
        self.alive = False
        self.loaded = False
        """Whether the journal was read to its end."""

    @property
    def now(self) -> float:
        """The time it is for this run: nothing grows older in one that nobody works on."""
        if self.alive or self.state is None:
            return self.clock()
        return self.state.last_at

    def catch_up(self, seconds: float) -> bool:
        """Take what is new, for so long at most; whether anything was."""
        if self.loaded and not self.feed.changed():
            return False
        until, before = perf_counter() + seconds, self.seq
        while True:
            new = self.feed.read(self.seq, SLICE)
            for seq, fact in new:
                self._take(seq, fact)
            if len(new) < SLICE:
                self.loaded = True
                break
            if perf_counter() > until:
                self.loaded = False  # there is more: ask again, whatever `changed` says
                break
        return self.seq != before

    def look(self) -> bool:
        """Whether somebody works on it; True if that is other than before."""
        before, self.alive = self.alive, self.feed.alive
        return before != self.alive

    def about(self, subtask: str) -> list[Event]:
        return [event for event in self.events if event.about == subtask]

    def _take(self, seq: int, fact: f.Fact) -> None:
        before, self.state = self.state, evolve(self.state, fact)
        self.seq = seq
        if isinstance(fact, f.ModelCalled):  # by far the most, and never an event
            return
        if isinstance(fact, f.BatchTested):
            self._tested(before, fact)
        text = said(self.state, fact)
        if text:
            about = getattr(fact, "subtask", None) or getattr(fact, "about", None)
            for line in text.splitlines():
                self._told += 1
                event = Event(self._told, fact.at, line, _tone(fact, line), about, routine=_routine(fact))
                self.events.append(event)

    def _tested(self, before: RunState | None, fact: f.BatchTested) -> None:
        self.landed_at += [fact.at] * len(fact.landed)
        probe = before.landing.probe(fact.number) if before is not None else None
        self.batches.append(
            Tested(
                number=fact.number,
                members=tuple(member.subtask for member in probe.members) if probe else (),
                alone=probe.alone if probe else False,
                formed_at=probe.formed_at if probe else fact.at,
                at=fact.at,
                landed=tuple(member.subtask for member in fact.landed),
                ejected=tuple((out.subtask, out.failure.summary) for out in fact.ejected),
                red=fact.red,
                suspects=fact.suspects,
            )
        )


def _routine(fact: f.Fact) -> bool:
    return isinstance(fact, f.AttemptCommitted) or (isinstance(fact, f.AttemptStarted) and fact.strategy == "first")


def _tone(fact: f.Fact, line: str) -> Tone:
    match fact:
        case f.AttemptFailed() | f.PlannerFailed() | f.PublishFailed() | f.EngineStopped():
            return "bad"
        case f.BatchTested():
            return "good" if fact.landed and line.startswith("landed") else "bad"
        case f.QuestionAsked() | f.WarningNoted():
            return "warn"
        case f.RunEnded():
            return "good" if fact.ending == "landed" else "bad"
        case _:
            return "warn" if line.startswith("QUESTION") else ""


def commits_an_hour(watched: Watched) -> float | None:
    """How fast work lands, over the time it was worked on; None while nothing can be said."""
    state = watched.state
    if state is None or not watched.landed_at:
        return None
    hours = state.seconds(watched.now) / 3600
    return len(watched.landed_at) / hours if hours > 0 else None


def landings(watched: Watched, bins: int) -> list[int]:
    """How much landed in each part of the run's time so far."""
    state = watched.state
    if state is None:
        return []
    begun, now = state.started_at, max(watched.now, state.last_at)
    counts = [0] * bins
    span = max(now - begun, 1e-9)
    for at in watched.landed_at:
        counts[min(bins - 1, max(0, int((at - begun) / span * bins)))] += 1
    return counts


def fresh(watched: Watched) -> Watched:
    """The same run from its beginning."""
    return Watched(watched.feed, watched.clock)
