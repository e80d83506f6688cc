"""The one follower: a run as its journal is read, for every face that shows it, and all runs of a library.

Facts are read in slices, so that a screen reacts to keys, and a server to requests, while a long journal loads.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Protocol, TypeVar, cast

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import FactSource, Follower
from fleet.core.plans.plan import Plan
from fleet.core.policy.requests import Request
from fleet.core.state.state import Incident, NodeState, RunState
from fleet.errors import FleetError
from fleet.read.queue import PastBatch, past_batch
from fleet.read.run import RunSnapshot, just_after

# ---- ports -----------------------------------------------------------------------------------------------------------
# What faces need from outside: runs to read and to send requests to. They open no journal themselves.


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


# ---- one run ---------------------------------------------------------------------------------------------------------


EVENTS = 20_000  # kept in memory; `fleet watch --plain` prints all of them
BATCHES = 2_000
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that a fact ended."""

    subtask: SubtaskId
    worker: str
    seconds: float
    outcome: str
    """`landed`, the class of its failure, or `stopped`."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A fact that was read, with the state before and after it.

    Only both tell what a fact began or ended: a late report ends no attempt, and few facts open or close an incident.
    """

    before: RunState | None
    fact: f.Fact
    after: RunState

    @property
    def run(self) -> RunSnapshot:
        """The run after it."""
        return just_after(self.after)

    @property
    def at(self) -> float:
        """When it happened; never before an earlier fact."""
        return self.after.last_at

    def has_subtask(self, id_: SubtaskId | None) -> bool:
        return id_ in self.after.subtasks

    def batch(self, result: f.BatchTested) -> PastBatch:
        """The batch that its fact is the result of."""
        return past_batch(self.before, result)

    @property
    def is_first(self) -> bool:
        return self.before is None

    @property
    def is_rehearsed(self) -> bool:
        """Whether the run is about history: its figures are no work."""
        return self.after.rehearsal is not None

    @property
    def was_done_before(self) -> bool:
        """Whether this is work that a relanding began with: the run that did it has counted it."""
        work = isinstance(self.fact, f.AttemptStarted | f.AttemptCommitted | f.AttemptVerified)
        return work and self.before is not None and self.before.epoch == 0

    @property
    def replanned_for(self) -> str | None:
        """Why the planner was called that changed a plan; None if no plan was changed."""
        if not isinstance(self.fact, f.PlanRevised) or self.before is None:
            return None
        changed = bool(self.before.plan.subtasks) and self.fact.revision.changes_plan
        return self.before.planning.why if changed else None

    @property
    def worker_waited_s(self) -> float | None:
        """How long an attempt waited for its worktree while an engine ran; None if no worker started."""
        if not isinstance(self.fact, f.WorkerStarted) or self.before is None:
            return None
        current = self.before.subtasks[self.fact.subtask].current
        if current is None or current.working:
            return None
        return self.fact.at - max(current.started_at, self.before.engine_since or 0.0)

    @property
    def losses(self) -> int:
        """How often the node that it is about was lost by it."""
        if not isinstance(self.fact, f.NodeConnected | f.NodeLost) or self.before is None:
            return 0
        node = self.fact.node
        return self.after.nodes[node].losses - self.before.nodes.get(node, NodeState(node)).losses

    @property
    def is_bisecting(self) -> bool:
        """Whether a batch was formed to find out who is guilty of a red one."""
        if not isinstance(self.fact, f.BatchFormed):
            return False
        return self.fact.alone or (self.before is not None and bool(self.before.landing.suspects))

    @property
    def ended(self) -> Iterator[EndedAttempt]:
        """The attempts that it ended."""
        match self.fact:
            case f.AttemptFailed():
                yield from self._ended(self.fact.subtask, self.fact.failure.kind)
            case f.CancelRequested() if self.before is not None:
                for subtask, _ in self.before.underway():
                    yield from self._ended(subtask.id, "stopped")
            case f.BatchTested():
                for member in self.fact.landed:
                    yield from self._ended(member.subtask, "landed")
                for out in self.fact.ejected:
                    yield from self._ended(out.subtask, out.failure.kind)
            case _:
                pass

    def _ended(self, id_: SubtaskId, outcome: str) -> Iterator[EndedAttempt]:
        """None if the fact is a late one about an earlier attempt."""
        current = self.before.subtasks[id_].current if self.before is not None else None
        still_open = self.after.subtasks[id_].current
        if current is not None and (still_open is None or still_open.number != current.number):
            yield EndedAttempt(id_, current.worker, self.fact.at - current.started_at, outcome)

    @property
    def opened(self) -> tuple[f.FailureKind, ...]:
        """The classes of the incidents that it opened."""
        before = len(self.before.incidents) if self.before is not None else 0
        return tuple(incident.kind for index, incident in self._changed() if index >= before)

    @property
    def closed(self) -> Iterator[Incident]:
        """The incidents that it closed."""
        before = self.before.incidents if self.before is not None else ()
        for index, incident in self._changed():
            was_open = index >= len(before) or before[index].closed_at is None
            if incident.closed_at is not None and was_open:
                yield incident

    def _changed(self) -> Iterator[tuple[int, Incident]]:
        if self.before is not None and self.after.incidents is not self.before.incidents:
            for index in self.after.incidents.changed_since(self.before.incidents):
                yield index, self.after.incidents[index]


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


Tell = Callable[[Step, int], Sequence[Event]]
"""The events of a fact, and the number of the first one of them."""


class RunFollower:
    """One run, as far as its journal was read."""

    def __init__(
        self, facts: FactFeed, clock: Callable[[], float], *, take: Callable[[Step], None] | None = None
    ) -> None:
        """`take` is called with each fact that is read."""
        self.clock = clock
        self._facts, self._given = facts, take
        self._follower = Follower(self._take if take is not None else None)
        self.alive = False
        """Whether a process was running it when someone last looked."""

    @property
    def state(self) -> RunState | None:
        return self._follower.state

    @property
    def seq(self) -> int:
        """The number of the last fact that was read."""
        return self._follower.seq

    @property
    def loaded(self) -> bool:
        """Whether the journal was read to its end."""
        return self._follower.loaded

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as it was read."""
        return self.state is not None and self.state.ended

    @property
    def snapshot(self) -> RunSnapshot | None:
        """The run now; None before its first fact was read."""
        return None if self.state is None else RunSnapshot(self.state, self.now, self.alive)

    @property
    def now(self) -> float:
        """The current time; in a run that no process is running, the time of its last fact: nothing grows older."""
        if self.alive or self.state is None:
            return self.clock()
        return self.state.last_at

    def catch_up(self, seconds: float = float("inf")) -> bool:
        """Read new facts for at most `seconds`, or one slice; return whether there were any."""
        until = perf_counter() + seconds
        return self._follower.catch_up(self._facts, lambda: perf_counter() <= until)

    def look(self) -> None:
        """See whether a process is running it."""
        self.alive = self._facts.alive

    def _take(self, before: RunState | None, fact: f.Fact, after: RunState) -> None:
        if self._given is not None:
            self._given(Step(before, fact, after))


class FollowedRun(RunFollower):
    """One that is shown and decided about; with its events and its batches if there is a `tell`."""

    def __init__(
        self,
        feed: Feed,
        clock: Callable[[], float],
        *,
        facts: FactFeed | None = None,
        tell: Tell | None = None,
        take: Callable[[Step], None] | None = None,
    ) -> None:
        """`take` is called with each fact that is read, after its events were told."""
        super().__init__(facts or feed, clock, take=take)
        if tell is not None:
            self._follower.on_fact = self._take
        self.feed, self.tell = feed, tell
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.batches: deque[PastBatch] = deque(maxlen=BATCHES)
        self.event_count = 0
        self._landed_at: list[float] = []
        """In ascending order."""
        self._derived: dict[str, tuple[object, object]] = {}

    @property
    def working(self) -> int:
        """How many agents are at work."""
        return self.state.working() if self.alive and self.state is not None else 0

    def fork(self, facts: FactFeed, clock: Callable[[], float]) -> "FollowedRun":
        """Another one that has read as much, and continues with these facts."""
        twin = FollowedRun(self.feed, clock, facts=facts, tell=self.tell)
        twin._follower.state, twin._follower.seq = self.state, self.seq
        twin.events, twin.batches = self.events.copy(), self.batches.copy()
        twin._landed_at, twin.event_count = self._landed_at.copy(), self.event_count
        return twin

    def derive(self, name: str, source: object, make: Callable[[], Made]) -> Made:
        """What `make` makes of a frozen value, kept until the value is another one."""
        if name not in self._derived or self._derived[name][0] is not source:
            self._derived[name] = (source, make())
        return cast("Made", self._derived[name][1])

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

    def _take(self, before: RunState | None, fact: f.Fact, after: RunState) -> None:
        if self.tell is not None and not isinstance(fact, f.ModelCalled):  # the most frequent fact, and never an event
            step = Step(before, fact, after)
            if isinstance(fact, f.BatchTested):
                self._landed_at += [step.at] * len(fact.landed)
                self.batches.append(past_batch(before, fact))
            told = self.tell(step, self.event_count + 1)
            self.event_count += len(told)
            self.events.extend(told)
        super()._take(before, fact, after)


# ---- all runs --------------------------------------------------------------------------------------------------------


LATEST = 30  # runs are followed; of older ones, those that were opened by name


class FollowedRuns:
    """The latest runs of a library, which are read a little at a time. A run that can't be read is left out."""

    def __init__(
        self, library: Library, clock: Callable[[], float], *, note_bug: Callable[[Exception], None] | None = None
    ) -> None:
        """`note_bug` is called with an error of ours in one run, which then takes no other with it."""
        self.clock = clock
        self._library, self._note_bug = library, note_bug
        self._runs: dict[str, FollowedRun | None] = {}
        """None for a run that can't be read."""
        self._listed: list[str] = []
        self._turn = 0

    def latest(self, *, but: str = "") -> list[FollowedRun]:
        """The latest runs that can be read, the latest first. `but` is followed elsewhere."""
        self._listed = [name for name in self._library.names()[:LATEST] if name != but]
        for name, run in list(self._runs.items()):
            if name not in self._listed and (run is None or run.tell is None):
                self._forget(name)
                del self._runs[name]
        for name in self._listed:
            if name not in self._runs:
                self._runs[name] = self._open(name, None)
        return self.readable()

    def readable(self) -> list[FollowedRun]:
        """The same, as they were listed last."""
        return [run for name in self._listed if (run := self._runs[name]) is not None]

    def told(self, name: str, tell: Tell) -> FollowedRun | None:
        """A run with its events; None if there is none with this name that can be read."""
        run = self._runs.get(name)
        if run is not None and run.tell is not None:
            return run
        if name not in self._library.names():
            return None
        opened = self._open(name, tell)
        if opened is not None:
            self._forget(name)
            self._runs[name] = opened
        return opened

    def look(self, seconds: float, *, but: str = "") -> set[str]:
        """Read what is new for about so long, in turn; return the runs about which there is something new."""
        self.latest(but=but)
        until, names, changed = perf_counter() + seconds, list(self._runs), set[str]()
        for _ in names:
            name = names[self._turn % len(names)]
            self._turn += 1
            if self._read(name, max(0.0, until - perf_counter())):
                changed.add(name)
            if perf_counter() >= until:
                break
        return changed

    def _open(self, name: str, tell: Tell | None) -> FollowedRun | None:
        try:
            return FollowedRun(self._library.open(name), self.clock, tell=tell)
        except FleetError:
            return None

    def _forget(self, name: str) -> None:
        run = self._runs.get(name)
        if run is not None:
            run.feed.close()
            self._runs[name] = None

    def _read(self, name: str, seconds: float) -> bool:
        run = self._runs[name]
        if run is None:
            return False
        try:
            was_alive = run.alive
            run.look()
            return run.catch_up(seconds) or run.alive != was_alive
        except FleetError:
            pass
        except Exception as bug:  # one run that can't be followed takes no other with it
            if self._note_bug is None:
                raise
            self._note_bug(bug)
        self._forget(name)
        return True
