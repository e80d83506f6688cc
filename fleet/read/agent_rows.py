"""The agents at work, and the machines: the planner while it is called, every attempt under way, and the nodes."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.plans.plan import PLANNER
from fleet.core.state.machines import known_machines, machine_problem
from fleet.core.state.state import NodeState, Planning, RunState, drained_by, listed
from fleet.core.state.status import Phase, phase, ready
from fleet.core.state.subtasks import Attempt, SubtaskState

AgentOrder = Literal["busy", "age", "subtask", "state", "turn", "tokens", "cost", "model", "doing"]


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent. Its texts are untrusted."""

    subtask: SubtaskId | None
    """None: the run's planner."""
    number: int
    """Of the attempt, or of the planner's call."""
    worker: str
    phase: Phase
    turn: int
    doing: str
    """The tool that runs now; empty while it waits for the model."""
    said: str
    """What its model said last."""
    spend: Spend
    since: float | None = None
    """When the attempt started; None for the run's planner."""
    node: str = ""
    """The node that works on it; empty: the manager's machine."""
    model: str = ""
    """Empty while none was called."""
    is_area: bool = False
    """Whether it is the planner of an area."""
    is_called: bool = False
    """Whether a planner is being called: that of an area rests while its subtasks are under way."""
    call_why: str = ""
    """Why the planner is called; empty for workers."""


PHASE_ORDER: Mapping[Phase, int] = {"landing": 0, "checking": 1, "working": 2, "starting": 3, "planning": 4}
ORDERS: Mapping[AgentOrder, Callable[[SubtaskState, Attempt], object]] = {
    "busy": lambda _, attempt: (attempt.commit is not None, attempt.started_at),
    "age": lambda _, attempt: attempt.started_at,
    "subtask": lambda subtask, _: subtask.id,
    "state": lambda _, attempt: (PHASE_ORDER[phase(attempt)], attempt.started_at),
    "turn": lambda _, attempt: -attempt.turn,
    "tokens": lambda _, attempt: -attempt.spend.usage.total,
    "cost": lambda _, attempt: -attempt.spend.priced_dollars,
    "model": lambda _, attempt: attempt.model or "",
    "doing": lambda _, attempt: attempt.doing,
}
"""How agents can be ordered. `busy`: the longest at work first, and after them those whose work is checked or waits."""


def agent_rows(state: RunState, order: AgentOrder = "busy", *, is_reversed: bool = False) -> list[AgentRow]:
    """The run's planner first, whatever the order."""
    key = ORDERS[order]
    busy = sorted(state.underway(), key=lambda pair: key(*pair), reverse=is_reversed)  # type: ignore[arg-type,return-value] # one kind each
    rows = [_agent(state, subtask, attempt) for subtask, attempt in busy]
    return rows if state.planning.open is None else [_planner(state), *rows]


def _planner(state: RunState) -> AgentRow:
    it = state.planning
    spend = state.spend.get("planner", Spend())
    return AgentRow(
        None, it.open or 0, PLANNER, "planning", it.turn, it.doing, it.said, spend, is_called=True, call_why=it.why
    )


def _agent(state: RunState, subtask: SubtaskState, attempt: Attempt) -> AgentRow:
    """What the planner of an area does is kept with the area."""
    area = state.areas.get(subtask.id, Planning()) if attempt.worker == PLANNER else None
    agent = area if area is not None else attempt
    return AgentRow(
        subtask=subtask.id,
        number=attempt.number,
        worker=attempt.worker,
        phase=phase(attempt),
        turn=agent.turn,
        doing=agent.doing,
        said=agent.said,
        spend=attempt.spend,
        since=attempt.started_at,
        node=attempt.node,
        model=attempt.model or "",
        is_area=area is not None,
        is_called=area is not None and area.open is not None,
        call_why=area.why if area is not None else "",
    )


# ---- nodes view ------------------------------------------------------------------------------------------------------
# The machines that work for a run, and which subtasks wait for one.


NodeStatus = Literal["connected", "drained", "out", "banned"]
"""`drained`: nothing new goes there. `out`: it can't be reached or used. `banned`: it sent what it may not send."""
MOST_WAITING = 100


@dataclass(frozen=True, slots=True)
class NodeUseView:
    """A node of a run. What it says of itself is null until it has connected."""

    name: str
    """As in `[nodes.NAME]`."""
    status: NodeStatus
    """`connected`, `drained`, `out` (not available) or `banned`."""
    why: str
    """Why it is out or banned; who drained it."""
    working: int
    """Attempts that it works on now; 0 if no engine runs."""
    workers: int | None
    """How many attempts it works on at once."""
    checks: int | None
    """How many orders for checks it has at once."""
    attempts: int
    """Attempts of the run that it worked on, those now included."""
    failed: int
    """Of these, attempts that ended because the node was lost or something broke there."""
    losses: int
    """How often it was lost after it had connected."""
    labels: tuple[str, ...]
    """What it has, by the configuration."""
    lands: bool
    """Whether its verdict on a merged tree counts."""
    host: str | None
    """What it calls itself."""
    version: str | None
    """Its version of fleet."""
    processors: int | None
    """How many it may use."""
    memory_bytes: int | None
    """How much it has."""
    skew_s: float | None
    """How far its clock was ahead of this machine's when it connected, in seconds."""
    commits: int | None
    """Commits of the repository that it had when it connected."""


def node_views(state: RunState, *, alive: bool) -> tuple[NodeUseView, ...]:
    """By name."""
    if not state.nodes:
        return ()
    attempts, failed = Counter[str](), Counter[str]()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            if attempt.node:
                attempts[attempt.node] += 1
                failed[attempt.node] += attempt.failure is not None and attempt.failure.kind == "infrastructure"
    working = node_occupancy(state) if alive else Counter[str]()
    return tuple(
        _view(state, node, working[node.name], attempts[node.name], failed[node.name]) for node in listed(state.nodes)
    )


def node_occupancy(state: RunState) -> Counter[str]:
    """How many attempts each node works on now."""
    return Counter(attempt.node for _, attempt in state.running() if attempt.working and attempt.node)


def node_status(nodes: Mapping[str, NodeState], node: NodeState) -> NodeStatus:
    if node.banned:
        return "banned"
    return "drained" if drained_by(nodes, node) else "out" if node.out else "connected"


def waiting_for_machines(state: RunState, now: float) -> Mapping[SubtaskId, str]:
    """The first of the subtasks that could start, but for a machine with their labels; and why."""
    machines, subtasks = state.policy.machines, state.subtasks
    if state.ended or not (machines.workers or subtasks.plan.labelled):
        return {}
    candidates = ready(state, now) if machines.workers else ready(state, now) & subtasks.plan.labelled
    found: dict[SubtaskId, str] = {}
    for id_ in subtasks.first(candidates):
        if why := machine_problem(state, state.spec(id_)):
            found[id_] = why
        if len(found) == MOST_WAITING:
            break
    return found


def _view(state: RunState, node: NodeState, working: int, attempts: int, failed: int) -> NodeUseView:
    greeting, offer = node.greeting, known_machines(state).offers.get(node.name)
    drainer = drained_by(state.nodes, node)
    return NodeUseView(
        name=node.name,
        status=node_status(state.nodes, node),
        why=f"by {drainer}" if drainer and not node.banned else node.out,
        working=working,
        workers=greeting.workers if greeting is not None else None,
        checks=greeting.checks if greeting is not None else None,
        attempts=attempts,
        failed=failed,
        losses=node.losses,
        labels=offer.labels if offer is not None else (),
        lands=offer is not None and offer.lands,
        host=greeting.host if greeting is not None else None,
        version=greeting.version if greeting is not None else None,
        processors=greeting.processors if greeting is not None else None,
        memory_bytes=greeting.memory_bytes if greeting is not None else None,
        skew_s=greeting.skew_s if greeting is not None else None,
        commits=greeting.commits if greeting is not None else None,
    )
