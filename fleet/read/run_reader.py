"""A run as its journal is read: the run so far, and each fact with what it began or ended."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import FactSource, Follower
from fleet.core.state.state import Incident, NodeState, RunState, recovered_by, strategies_of
from fleet.read.queue import PastBatch, past_batch
from fleet.read.run import RunSnapshot, just_after


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that a fact ended."""

    subtask: SubtaskId
    worker: str
    seconds: float
    outcome: str
    """`landed`, the class of its failure, or `stopped`."""


@dataclass(frozen=True, slots=True)
class ClosedIncident:
    """An incident that a fact closed."""

    kind: f.FailureKind
    recovered: bool
    at: float
    seconds: float
    strategy: f.Strategy | None
    """What recovered it; `human` if it was handed over."""
    chosen: Mapping[f.Strategy, bool]
    """The strategies that were chosen for it, each with whether it recovered it."""


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
    def closed(self) -> Iterator[ClosedIncident]:
        """The incidents that it closed."""
        before = self.before.incidents if self.before is not None else ()
        for index, incident in self._changed():
            was_open = index >= len(before) or before[index].closed_at is None
            if incident.closed_at is not None and was_open:
                yield ClosedIncident(
                    incident.kind,
                    bool(incident.recovered),
                    incident.closed_at,
                    incident.closed_at - incident.opened_at,
                    incident.strategy,
                    {name: recovered_by(incident) == name for name in sorted(strategies_of(incident))},
                )

    def _changed(self) -> Iterator[tuple[int, Incident]]:
        if self.before is not None and self.after.incidents is not self.before.incidents:
            for index in self.after.incidents.changed_since(self.before.incidents):
                yield index, self.after.incidents[index]


class RunReader:
    """A run, as far as its journal was read."""

    def __init__(self, take: Callable[[Step], None] | None = None) -> None:
        """`take` is called with each fact that is read."""
        on_fact = None if take is None else lambda before, fact, after: take(Step(before, fact, after))
        self._follower = Follower(on_fact)

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

    def read(self, source: FactSource, may_continue: Callable[[], bool]) -> bool:
        """Read new facts; return whether there were any."""
        return self._follower.catch_up(source, may_continue)

    def continue_from(self, other: "RunReader") -> None:
        """Begin where another one has read to."""
        self._follower.state, self._follower.seq = other.state, other.seq

    def snapshot_at(self, now: float, *, alive: bool) -> RunSnapshot | None:
        """None before its first fact was read."""
        return None if self.state is None else RunSnapshot(self.state, now, alive)
