"""The machines that work for a run, and which subtasks wait for one."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import SubtaskId
from fleet.core.state.machines import known_machines, machine_problem
from fleet.core.state.state import NodeState, RunState, drained_by, listed
from fleet.core.state.status import ready

NodeStatus = Literal["connected", "drained", "out", "banned"]
"""`drained`: nothing new goes there. `out`: it can't be reached or used. `banned`: it sent what it may not send."""
MOST_WAITING = 100


@dataclass(frozen=True, slots=True)
class NodeUseView:
    """A node of a run. What it says of itself is null until it has connected."""

    name: str
    """As in `[nodes.NAME]`."""
    status: NodeStatus
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
