"""The plan as a graph and as a map, the dependents of its subtasks, and its versions with their changes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Literal

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.plans.plan import Plan, Subtask, waves
from fleet.core.state.state import RunState, Version
from fleet.core.state.status import Status, phase
from fleet.core.state.subtasks import Mark, Set

SHORTEST_CHAIN = 2  # a single subtask is not a chain


@dataclass(frozen=True, slots=True)
class Waiting:
    """The dependencies between the open subtasks of a plan."""

    counts: Mapping[SubtaskId, int]
    """Number of direct and indirect dependents."""
    chain: frozenset[SubtaskId]
    """The longest chain: the critical path if all subtasks take the same time."""


def waiting(plan: Plan, open_: Collection[SubtaskId]) -> Waiting:
    needs = {spec.id: [need for need in spec.depends_on if need in open_] for spec in plan.subtasks if spec.id in open_}
    behind: dict[SubtaskId, list[SubtaskId]] = {id_: [] for id_ in needs}
    for id_, each in needs.items():
        for need in each:
            behind[need].append(id_)
    bits = {id_: 1 << place for place, id_ in enumerate(needs)}
    sets, lengths = dict[SubtaskId, int](), dict[SubtaskId, int]()
    for id_ in reversed(tuple(TopologicalSorter(needs).static_order())):
        sets[id_], lengths[id_] = 0, 1
        for other in behind[id_]:
            sets[id_] |= sets[other] | bits[other]
            lengths[id_] = max(lengths[id_], lengths[other] + 1)
    counts = {id_: members.bit_count() for id_, members in sets.items()}
    return Waiting(counts, frozenset(_longest(behind, lengths)))


def _longest(behind: Mapping[SubtaskId, Sequence[SubtaskId]], lengths: Mapping[SubtaskId, int]) -> list[SubtaskId]:
    here = max(lengths, key=lengths.__getitem__, default=None)
    if here is None or lengths[here] < SHORTEST_CHAIN:
        return []
    chain = [here]
    while behind[here]:
        here = max(behind[here], key=lengths.__getitem__)
        chain.append(here)
    return chain


# ---- graph -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A subtask in the graph."""

    spec: Subtask
    above: str | None
    """The subtask above it in the graph."""
    depth: int
    """Number of levels above it."""
    is_last: bool
    """Whether it is the last one on its level."""


def graph(plan: Plan, parents: Mapping[str, str | None]) -> list[TreeNode]:
    """Each subtask once: below the subtask it was split from, its area, or its last dependency."""
    order = {id_: place for place, id_ in enumerate(plan.ids)}
    above: dict[str, str | None] = {}
    below: dict[str | None, list[Subtask]] = {}
    for spec in plan.subtasks:
        needs = [need for need in spec.depends_on if need in order]
        above[spec.id] = parents.get(spec.id) or max(needs, key=lambda need: order[need], default=None)
        below.setdefault(above[spec.id], []).append(spec)
    nodes: list[TreeNode] = []
    pending = _below(below, None, 0)
    while pending:  # not recursive: a chain may be as long as the plan
        node = pending.pop()
        nodes.append(node)
        pending += _below(below, node.spec.id, node.depth + 1)
    return nodes


def _below(below: Mapping[str | None, Sequence[Subtask]], above: str | None, depth: int) -> list[TreeNode]:
    """The nodes in reverse order."""
    return [TreeNode(spec, above, depth, not place) for place, spec in enumerate(reversed(below.get(above, ())))]


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of a subtask in the plan."""

    status: Status
    awaits_approval: bool
    attempts: int
    landed: Sha | None
    """The landed commit. None if it did not land."""


# ---- waves -----------------------------------------------------------------------------------------------------------


WaveParts = Sequence[Sequence[tuple[SubtaskId, str, tuple[SubtaskId, ...], SubtaskId | None]]]


def wave_parts(state: RunState) -> WaveParts:
    """The subtasks in waves, with title, dependencies and area. They only change with the plan."""
    return [
        [(id_, state.specs[id_].title, state.specs[id_].depends_on, state.subtasks[id_].area) for id_ in wave]
        for wave in waves(state.plan)
    ]


# ---- versions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """A version of the plan, with its author, its reason and its changes."""

    number: int
    at: float
    by: str
    why: str
    subtasks: int
    is_first: bool
    added: tuple[Subtask, ...]
    changed: tuple[Subtask, ...]


def plan_versions(state: RunState) -> tuple[PlanVersion, ...]:
    """The versions of the plan, in order."""
    pairs = pairwise((None, *state.versions))
    return tuple(_version(before, version) for before, version in pairs if version is not None)


def _version(before: Version | None, version: Version) -> PlanVersion:
    """Compare a version with the one before. New subtasks come last."""
    count = len(version.plan.subtasks)
    old = len(version.changed) - (count - len(before.plan.subtasks)) if before is not None else 0
    return PlanVersion(
        number=version.plan.version,
        at=version.at,
        by=version.by,
        why=version.why,
        subtasks=count,
        is_first=before is None,
        added=version.changed[old:],
        changed=version.changed[:old],
    )


# ---- state map -------------------------------------------------------------------------------------------------------
# A map of all subtasks with their states, in a limited number of cells.
#
# A cell represents one or more subtasks and shows the most urgent state. Because of sets, the cost depends on the
# number of cells, not on the size of the plan.


State = Literal[
    "asks", "failed", "working", "planning", "checking", "landing", "starting", "ready", "waiting", "landed", "gone"
]
STATES: tuple[State, ...] = (
    *("asks", "failed", "working", "planning", "checking", "landing"),
    *("starting", "ready", "waiting", "landed", "gone"),
)
"""The states, most urgent first. A cell with several subtasks shows the first one. `gone` is split or dropped."""


@dataclass(frozen=True, slots=True)
class SubtaskMap:
    """The cells in start order, and the number of subtasks in each state."""

    cells: Sequence[State]
    counts: dict[State, int]
    each: int
    """Number of subtasks per cell."""


def subtask_map(state: RunState, room: int, *, alive: bool = True) -> SubtaskMap:
    """A map of at most `room` cells. Without a process, no subtask is running."""
    sets = state_sets(state, alive=alive)
    total = len(state.subtasks)
    each = max(1, -(-total // max(1, room)))
    mask = (1 << each) - 1
    present = [(name, sets[name]) for name in STATES if sets[name]]
    cells: list[State] = [
        next((name for name, chosen in present if (chosen >> first) & mask), "gone") for first in range(0, total, each)
    ]
    return SubtaskMap(cells, {name: chosen.bit_count() for name, chosen in present}, each)


def state_sets(state: RunState, *, alive: bool) -> dict[State, Set]:
    """The subtasks in each state. Only running subtasks are inspected one by one."""
    subtasks = state.subtasks
    sets: dict[State, Set] = dict.fromkeys(STATES, 0)
    gone = subtasks.marked(Mark.GONE)
    underway = subtasks.marked(Mark.UNDERWAY)
    sets["gone"] = gone
    sets["landed"] = subtasks.marked(Mark.CLOSED) & ~gone
    rest = subtasks.open
    if alive:
        for subtask, attempt in state.underway():
            sets[phase(attempt)] |= subtasks.set_of((subtask.id,))
        rest &= ~underway
    sets["asks"] = rest & subtasks.marked(Mark.ASKED)
    sets["failed"] = rest & subtasks.marked(Mark.FAILED) & ~sets["asks"]
    rest &= ~(sets["asks"] | sets["failed"])
    sets["ready"] = rest & (subtasks.startable | underway)
    sets["waiting"] = rest & ~sets["ready"]
    return sets
