"""The figures that metrics show: of a run at one moment, and of one fact with the run before and after it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleet.core.base.ids import RunId, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.policy.budget import run_budgets
from fleet.core.policy.endings import ends_unanswered_at
from fleet.core.state.state import Incident, NodeState, RunState, listed, recovered_by, strategies_of
from fleet.core.state.status import Phase, Progress, Status, agent_phases, progress, status_counts
from fleet.read.agent_rows import NodeStatus, node_occupancy, node_status, waiting_for_machines
from fleet.read.question_view import needed
from fleet.read.run_view import RunStatus, run_word

MOVING: frozenset[RunStatus] = frozenset({"planning", "running", "draining"})

# ---- a run at one moment ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """A node of a run that an engine works on."""

    name: str
    status: NodeStatus
    up: bool
    """Whether the run is connected to it."""
    attempts: int
    """Attempts that it works on now."""
    slots: int
    """How many it works on at once."""


@dataclass(frozen=True, slots=True)
class MetricFigures:
    """A run that has not ended, in numbers."""

    run: RunId
    repository: str
    status: RunStatus
    alive: bool
    """Whether an engine works on it."""
    started_at: float
    last_at: float
    """When something last happened."""
    seconds: float
    """How long engines worked on it."""
    landed: Progress
    needs_human: bool
    moves: bool
    """Whether an engine works on it and it waits for no person."""
    ends_at: float | None
    """When it ends unless someone answers."""
    is_base_red: bool
    dollars: float
    """What it has cost, as far as prices are known."""
    budget_dollars: float | None
    budget_used: float | None
    """The used share of its most used budget."""
    questions: int
    """Open questions."""
    subtasks: Mapping[Status, int]
    agents: Mapping[Phase, int]
    """Agents by what they are doing; empty if no engine works on it, like all that follows but `peak` and `queued`."""
    workers: int
    """The most agents at once."""
    peak: int
    outages: Mapping[f.ServiceCondition, int]
    incidents: int
    """Open incidents."""
    queued: int
    """Subtasks in the merge queue, and those that were taken out of it to be tested alone."""
    testing: int
    """Batches under test."""
    batches: int
    """The most batches under test."""
    nodes: tuple[NodeFigures, ...]
    waiting_for_machines: int


def metric_figures(state: RunState, now: float, *, alive: bool) -> MetricFigures:
    seen_at = now if alive else state.last_at
    status, needs_human = run_word(state, now, alive=alive), bool(needed(state, seen_at, alive=alive))
    shares = [budget.used / budget.limit for budget in run_budgets(state, seen_at)]
    return MetricFigures(
        run=state.run,
        repository=state.repository,
        status=status,
        alive=alive,
        started_at=state.started_at,
        last_at=state.last_at,
        seconds=state.seconds(seen_at),
        landed=progress(state),
        needs_human=needs_human,
        moves=status in MOVING and not (needs_human and not any(state.underway())),
        ends_at=ends_unanswered_at(state, now) if alive else None,
        is_base_red=bool(state.red_base),
        dollars=state.spent.priced_dollars,
        budget_dollars=state.policy.budget_dollars,
        budget_used=max(shares, default=None),
        questions=len(state.open_questions()),
        subtasks=status_counts(state, now),
        agents=Counter(agent_phases(state)) if alive else {},
        workers=state.policy.workers if alive else 0,
        peak=state.peak,
        outages=Counter(outage.condition for outage in state.service.values()) if alive else {},
        incidents=sum(incident.closed_at is None for incident in state.incidents),
        queued=_queued(state),
        testing=len(state.landing.open_batches) if alive else 0,
        batches=state.policy.slots if alive else 0,
        nodes=tuple(_node_figures(state)) if alive else (),
        waiting_for_machines=len(waiting_for_machines(state, now)) if alive else 0,
    )


def _queued(state: RunState) -> int:
    taken_out = {member.subtask for batch in state.landing.open_batches if batch.alone for member in batch.members}
    return len(taken_out | set(state.landing.queue))


def _node_figures(state: RunState) -> Iterator[NodeFigures]:
    busy = node_occupancy(state)
    for node in listed(state.nodes):
        slots = node.greeting.workers if node.greeting is not None else 0
        yield NodeFigures(node.name, node_status(state.nodes, node), not node.out, busy[node.name], slots)


# ---- one fact --------------------------------------------------------------------------------------------------------


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
class Transition:
    """A fact with the state before and after it.

    Only both tell what a fact began or ended: a late report ends no attempt, and few facts open or close an incident.
    """

    before: RunState | None
    fact: f.Fact
    after: RunState

    @property
    def run(self) -> RunId:
        return self.after.run

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
