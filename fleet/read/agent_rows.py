"""Running agents and machines: the planner during a call, every running attempt, and the nodes."""

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
    """A running agent. Its texts are untrusted."""

    subtask: SubtaskId | None
    """None for the run's planner."""
    number: int
    """The number of the attempt or of the planner call."""
    worker: str
    phase: Phase
    turn: int
    doing: str
    """The current tool call. Empty while it waits for the model."""
    said: str
    """The latest text of its model."""
    spend: Spend
    since: float | None = None
    """When the attempt started. None for the run's planner."""
    node: str = ""
    """The node of the attempt. Empty for the manager's machine."""
    model: str = ""
    """Empty before the first call."""
    is_area: bool = False
    """Whether it is the planner of an area."""
    is_called: bool = False
    """Whether a planner call is running. The planner of an area rests while its subtasks are running."""
    call_why: str = ""
    """The reason for the planner call. Empty for workers."""


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
"""The sort orders of agents. `busy`: working agents first, longest first, then those whose work is checked or waits."""


def agent_rows(state: RunState, order: AgentOrder = "busy", *, is_reversed: bool = False) -> list[AgentRow]:
    """The agents in the given order, after the run's planner."""
    key = ORDERS[order]
    busy = sorted(state.underway(), key=lambda pair: key(*pair), reverse=is_reversed)  # type: ignore[arg-type,return-value] # one key type per order
    rows = [_agent(state, subtask, attempt) for subtask, attempt in busy]
    return rows if state.planning.open is None else [_planner(state), *rows]


def _planner(state: RunState) -> AgentRow:
    it = state.planning
    spend = state.spend.get("planner", Spend())
    return AgentRow(
        None, it.open or 0, PLANNER, "planning", it.turn, it.doing, it.said, spend, is_called=True, call_why=it.why
    )


def _agent(state: RunState, subtask: SubtaskState, attempt: Attempt) -> AgentRow:
    """Return the row of an attempt. The activity of an area's planner is stored with the area."""
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
# The nodes of a run, and the subtasks that wait for one.


NodeStatus = Literal["connected", "drained", "unavailable", "banned"]
"""`drained`: accepts no new work. `unavailable`: can't be reached or used. `banned`: violated the protocol."""
MOST_WAITING = 100


@dataclass(frozen=True, slots=True)
class NodeUseView:
    """A node of a run. Values reported by the node are null until it has connected."""

    name: str
    """The name in `[nodes.NAME]`."""
    status: NodeStatus
    """`connected`, `drained`, `unavailable` or `banned`."""
    why: str
    """Why it is unavailable or banned, or who drained it."""
    working: int
    """Running attempts. 0 if no engine is running."""
    workers: int | None
    """Maximum number of attempts at the same time."""
    checks: int | None
    """Maximum number of check requests at the same time."""
    attempts: int
    """Total attempts, including running ones."""
    failed: int
    """Attempts that ended because of a lost connection or an error on the node."""
    losses: int
    """Number of lost connections."""
    labels: tuple[str, ...]
    """The labels in the configuration."""
    lands: bool
    """Whether it may run checks on merged trees."""
    host: str | None
    """The host name."""
    version: str | None
    """The fleet version."""
    processors: int | None
    """Number of available processors."""
    memory_bytes: int | None
    """The memory in bytes."""
    skew_s: float | None
    """Seconds by which its clock was ahead of this machine's when it connected."""
    commits: int | None
    """Number of commits of the repository that it had when it connected."""


def node_views(state: RunState, *, alive: bool) -> tuple[NodeUseView, ...]:
    """The nodes of a run, by name."""
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
    """Number of running attempts by node."""
    return Counter(attempt.node for _, attempt in state.running() if attempt.working and attempt.node)


def node_status(nodes: Mapping[str, NodeState], node: NodeState) -> NodeStatus:
    if node.banned:
        return "banned"
    return "drained" if drained_by(nodes, node) else "unavailable" if node.out else "connected"


def waiting_for_machines(state: RunState, now: float) -> Mapping[SubtaskId, str]:
    """Ready subtasks that wait for a machine with matching labels, with the reason. Only the first ones."""
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
