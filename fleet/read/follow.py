"""Follow runs for all UIs: read their journals as they grow.

Facts are read in slices, so that a screen or a server stays responsive while a long journal loads.
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
# The ports of UIs: runs to read, and to send requests to. UIs do not open journals themselves.


class FactFeed(FactSource, Protocol):
    """The facts of a run, live or replayed."""

    @property
    def alive(self) -> bool:
        """Whether a process is running the run."""
        ...


class Feed(FactFeed, Protocol):
    """A run: its journal, its inbox and its files."""

    @property
    def run(self) -> str: ...

    def close(self) -> None:
        """Close the journal. Afterwards, only the files of the run are available."""
        ...

    def ask(self, request: Request) -> None:
        """Put a request into the inbox. The caller checks that it is valid."""
        ...

    def last_stderr_line(self) -> str:
        """The last output of an engine in the background. Empty if there is none."""
        ...

    def transcript(self, name: str, number: int) -> Path:
        """The file of a conversation. It may not exist."""
        ...

    def log(self, name: str) -> Path:
        """The file with the output of a check. It may not exist."""
        ...

    async def diff(self, base: Sha, commit: Sha) -> str | None:
        """The patch between two commits. None if they are no longer in the store."""
        ...

    async def copy(self, commit: Sha, into: Path) -> str | None:
        """Check out `commit` into an empty folder. Return an error message on failure."""
        ...

    def resume(self) -> str | None:
        """Resume the run in the background. Return an error message on failure."""
        ...

    def read_plan(self, path: Path) -> Plan | str:
        """Read a plan file. Return an error message if it is not valid."""
        ...

    def write_plan(self, plan: Plan, path: Path) -> None: ...


class RunLibrary(Protocol):
    """All runs of a state directory."""

    def names(self) -> Sequence[str]:
        """The names of all runs, latest first."""
        ...

    def open(self, run: str) -> Feed:
        """Open a run. The library closes it, unless the caller does so earlier."""
        ...


# ---- one run ---------------------------------------------------------------------------------------------------------


EVENTS = 20_000  # kept in memory; `fleet watch --plain` prints all of them
BATCHES = 2_000
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt ended by a fact."""

    subtask: SubtaskId
    worker: str
    seconds: float
    outcome: str
    """`landed`, the class of its failure, or `stopped`."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A fact, with the state before and after it.

    Both are needed to find its effect. For example, a late report does not end an attempt.
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
        """When it happened, in ascending order."""
        return self.after.last_at

    def has_subtask(self, id_: SubtaskId | None) -> bool:
        return id_ in self.after.subtasks

    def batch(self, result: f.BatchTested) -> PastBatch:
        """The batch of a result."""
        return past_batch(self.before, result)

    @property
    def is_first(self) -> bool:
        return self.before is None

    @property
    def is_rehearsed(self) -> bool:
        """Whether the run is a rehearsal, whose figures are not real work."""
        return self.after.rehearsal is not None

    @property
    def was_done_before(self) -> bool:
        """Whether this is existing work of a relanding, already counted for the original run."""
        work = isinstance(self.fact, f.AttemptStarted | f.AttemptCommitted | f.AttemptVerified)
        return work and self.before is not None and self.before.epoch == 0

    @property
    def replanned_for(self) -> str | None:
        """The reason for the planner call that changed a plan. None if the plan did not change."""
        if not isinstance(self.fact, f.PlanRevised) or self.before is None:
            return None
        changed = bool(self.before.plan.subtasks) and self.fact.revision.changes_plan
        return self.before.planning.why if changed else None

    @property
    def worker_waited_s(self) -> float | None:
        """Time an attempt waited for its worktree while an engine was running. None if no worker started."""
        if not isinstance(self.fact, f.WorkerStarted) or self.before is None:
            return None
        current = self.before.subtasks[self.fact.subtask].current
        if current is None or current.working:
            return None
        return self.fact.at - max(current.started_at, self.before.engine_since or 0.0)

    @property
    def losses(self) -> int:
        """Number of node connections lost by the fact."""
        if not isinstance(self.fact, f.NodeConnected | f.NodeLost) or self.before is None:
            return 0
        node = self.fact.node
        return self.after.nodes[node].losses - self.before.nodes.get(node, NodeState(node)).losses

    @property
    def is_bisecting(self) -> bool:
        """Whether a batch was formed to bisect a red batch."""
        if not isinstance(self.fact, f.BatchFormed):
            return False
        return self.fact.alone or (self.before is not None and bool(self.before.landing.suspects))

    @property
    def ended(self) -> Iterator[EndedAttempt]:
        """The attempts ended by the fact."""
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
        """Return the ended attempt. Empty for a late fact about an earlier attempt."""
        current = self.before.subtasks[id_].current if self.before is not None else None
        still_open = self.after.subtasks[id_].current
        if current is not None and (still_open is None or still_open.number != current.number):
            yield EndedAttempt(id_, current.worker, self.fact.at - current.started_at, outcome)

    @property
    def opened(self) -> tuple[f.FailureKind, ...]:
        """The classes of incidents opened by the fact."""
        before = len(self.before.incidents) if self.before is not None else 0
        return tuple(incident.kind for index, incident in self._changed() if index >= before)

    @property
    def closed(self) -> Iterator[Incident]:
        """The incidents closed by the fact."""
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
    """An event, as one line of text."""

    at: float
    text: str
    tone: str
    about: SubtaskId | None
    """The related subtask."""
    key: str
    """Unique for each event, so that a cursor stays on it. After the colon: the subtask that it opens."""
    is_routine: bool
    """Whether it occurs for every subtask, or continues the previous line. The overview hides such events."""
    members: tuple[SubtaskId, ...] = ()
    """The subtasks of a related batch."""
    more: int = 0
    """Number of continuation lines."""


Tell = Callable[[Step, int], Sequence[Event]]
"""Returns the events of a fact. The second argument is the number of the first one."""


class RunFollower:
    """A run, as far as its journal was read."""

    def __init__(
        self, facts: FactFeed, clock: Callable[[], float], *, take: Callable[[Step], None] | None = None
    ) -> None:
        """`take` is called for each fact."""
        self.clock = clock
        self._facts, self._given = facts, take
        self._follower = Follower(self._take if take is not None else None)
        self.alive = False
        """Whether a process was running it at the last `look`."""

    @property
    def state(self) -> RunState | None:
        return self._follower.state

    @property
    def seq(self) -> int:
        """The number of the last read fact."""
        return self._follower.seq

    @property
    def loaded(self) -> bool:
        """Whether the journal was read to its end."""
        return self._follower.loaded

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, as far as it was read."""
        return self.state is not None and self.state.ended

    @property
    def snapshot(self) -> RunSnapshot | None:
        """The current snapshot. None before the first fact."""
        return None if self.state is None else RunSnapshot(self.state, self.now, self.alive)

    @property
    def now(self) -> float:
        """The current time or, without a process, the time of the last fact, so that ages do not grow."""
        if self.alive or self.state is None:
            return self.clock()
        return self.state.last_at

    def catch_up(self, seconds: float = float("inf")) -> bool:
        """Read new facts for at most `seconds`, or one slice. Return whether there were any."""
        until = perf_counter() + seconds
        return self._follower.catch_up(self._facts, lambda: perf_counter() <= until)

    def look(self) -> None:
        """Check whether a process is running it."""
        self.alive = self._facts.alive

    def _take(self, before: RunState | None, fact: f.Fact, after: RunState) -> None:
        if self._given is not None:
            self._given(Step(before, fact, after))


class FollowedRun(RunFollower):
    """A run in a UI. Includes its events and batches if `tell` is given."""

    def __init__(
        self,
        feed: Feed,
        clock: Callable[[], float],
        *,
        facts: FactFeed | None = None,
        tell: Tell | None = None,
        take: Callable[[Step], None] | None = None,
    ) -> None:
        """`take` is called for each fact, after its events are added."""
        super().__init__(facts or feed, clock, take=take)
        if tell is not None:
            self._follower.on_fact = self._take
        self.feed, self.tell = feed, tell
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.batches: deque[PastBatch] = deque(maxlen=BATCHES)
        self.event_count = 0
        self._landed_at: list[float] = []
        """The times of landings, in ascending order."""
        self._derived: dict[str, tuple[object, object]] = {}

    @property
    def working(self) -> int:
        """Number of running agents."""
        return self.state.working() if self.alive and self.state is not None else 0

    def fork(self, facts: FactFeed, clock: Callable[[], float]) -> "FollowedRun":
        """Copy the run. The copy continues with these facts."""
        twin = FollowedRun(self.feed, clock, facts=facts, tell=self.tell)
        twin._follower.state, twin._follower.seq = self.state, self.seq
        twin.events, twin.batches = self.events.copy(), self.batches.copy()
        twin._landed_at, twin.event_count = self._landed_at.copy(), self.event_count
        return twin

    def derive(self, name: str, source: object, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, cached until `source` is another value."""
        if name not in self._derived or self._derived[name][0] is not source:
            self._derived[name] = (source, make())
        return cast("Made", self._derived[name][1])

    def events_about(self, subtask: SubtaskId) -> list[Event]:
        return [event for event in self.events if event.about == subtask or subtask in event.members]

    def commits_an_hour(self) -> float | None:
        """Landed commits per hour of active time. None before the first commit."""
        seconds = self.state.seconds(self.now) if self.state is not None else 0.0
        return len(self._landed_at) * 3600 / seconds if self._landed_at and seconds > 0 else None

    def landings(self, bins: int) -> list[int]:
        """Number of landed subtasks in each of `bins` equal parts of the time since the start."""
        counts = [0] * bins
        if self.state is not None:
            started_at = self.state.started_at
            span = max(self.now - started_at, self.state.last_at - started_at, 1e-9)
            edges = (started_at + span * number / bins for number in range(1, bins))
            places = [0, *(bisect_left(self._landed_at, edge) for edge in edges), len(self._landed_at)]
            counts = [after - before for before, after in pairwise(places)]
        return counts

    def _take(self, before: RunState | None, fact: f.Fact, after: RunState) -> None:
        if self.tell is not None and not isinstance(
            fact, f.ModelCalled
        ):  # the most frequent fact, which is never an event
            step = Step(before, fact, after)
            if isinstance(fact, f.BatchTested):
                self._landed_at += [step.at] * len(fact.landed)
                self.batches.append(past_batch(before, fact))
            told = self.tell(step, self.event_count + 1)
            self.event_count += len(told)
            self.events.extend(told)
        super()._take(before, fact, after)


# ---- all runs --------------------------------------------------------------------------------------------------------


LATEST = 30  # runs followed, plus older ones opened by name


class FollowedRuns:
    """The latest runs of a library, read in slices. Unreadable runs are left out."""

    def __init__(
        self, library: RunLibrary, clock: Callable[[], float], *, note_bug: Callable[[Exception], None] | None = None
    ) -> None:
        """`note_bug` is called for an internal error in one run, which does not affect the others."""
        self.clock = clock
        self._library, self._note_bug = library, note_bug
        self._runs: dict[str, FollowedRun | None] = {}
        """The runs by name. None for an unreadable run."""
        self._listed: list[str] = []
        self._turn = 0

    def latest(self, *, but: str = "") -> list[FollowedRun]:
        """The latest readable runs, latest first. `but` is followed elsewhere."""
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
        """The readable runs of the last listing."""
        return [run for name in self._listed if (run := self._runs[name]) is not None]

    def told(self, name: str, tell: Tell) -> FollowedRun | None:
        """A run with its events. None if it does not exist or can't be read."""
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
        """Read new facts of all runs in turn for about `seconds`. Return the names of runs with news."""
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
        except Exception as bug:  # an error in one run must not affect others
            if self._note_bug is None:
                raise
            self._note_bug(bug)
        self._forget(name)
        return True
