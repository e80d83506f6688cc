"""The plan as a graph and as a map, what waits for each of its subtasks, and its versions with their changes."""

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

SHORTEST_CHAIN = 2  # one subtask is no chain


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the open subtasks of a plan wait for each other."""

    counts: Mapping[SubtaskId, int]
    """How many wait for it, through others or not."""
    chain: frozenset[SubtaskId]
    """The longest chain, which is the critical path where all take the same time."""


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
class Node:
    """A subtask in the graph."""

    spec: Subtask
    above: str | None
    """What it is shown below."""
    depth: int
    """How many are above it."""
    is_last: bool
    """Whether it is the last one below the same."""


def graph(plan: Plan, parents: Mapping[str, str | None]) -> list[Node]:
    """Every subtask once: below what it was split from, its area, or its last dependency."""
    order = {id_: place for place, id_ in enumerate(plan.ids)}
    above: dict[str, str | None] = {}
    below: dict[str | None, list[Subtask]] = {}
    for spec in plan.subtasks:
        needs = [need for need in spec.depends_on if need in order]
        above[spec.id] = parents.get(spec.id) or max(needs, key=lambda need: order[need], default=None)
        below.setdefault(above[spec.id], []).append(spec)
    nodes: list[Node] = []
    pending = _below(below, None, 0)
    while pending:  # not recursive: a chain may be as long as the plan
        node = pending.pop()
        nodes.append(node)
        pending += _below(below, node.spec.id, node.depth + 1)
    return nodes


def _below(below: Mapping[str | None, Sequence[Subtask]], above: str | None, depth: int) -> list[Node]:
    """The last one first."""
    return [Node(spec, above, depth, not place) for place, spec in enumerate(reversed(below.get(above, ())))]


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with a subtask of the plan."""

    status: Status
    awaits_approval: bool
    attempts: int
    landed: Sha | None
    """The commit that landed; None if none did."""


# ---- waves -----------------------------------------------------------------------------------------------------------


WaveParts = Sequence[Sequence[tuple[SubtaskId, str, tuple[SubtaskId, ...], SubtaskId | None]]]


def wave_parts(state: RunState) -> WaveParts:
    """The subtasks in waves, each with its title, what it needs and its area. They change with the plan only."""
    return [
        [(id_, state.specs[id_].title, state.specs[id_].depends_on, state.subtasks[id_].area) for id_ in wave]
        for wave in waves(state.plan)
    ]


# ---- versions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """A version of the plan, with its author, its reason and its difference to the one before."""

    number: int
    at: float
    by: str
    why: str
    subtasks: int
    is_first: bool
    added: tuple[Subtask, ...]
    changed: tuple[Subtask, ...]


def plan_versions(state: RunState) -> tuple[PlanVersion, ...]:
    """The first one first."""
    pairs = pairwise((None, *state.versions))
    return tuple(_version(before, version) for before, version in pairs if version is not None)


def _version(before: Version | None, version: Version) -> PlanVersion:
    """New subtasks come last in what a version changes."""
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
# All subtasks at one look: what each of them is doing, in as many cells as there is room for.
#
# A cell stands for as many subtasks as are needed for that, and shows the state that needs the most attention. Sets
# make this cost what is in sight, not the size of the plan.


State = Literal[
    "asks", "failed", "working", "planning", "checking", "landing", "starting", "ready", "waiting", "landed", "gone"
]
STATES: tuple[State, ...] = (
    *("asks", "failed", "working", "planning", "checking", "landing"),
    *("starting", "ready", "waiting", "landed", "gone"),
)
"""The most urgent first: a cell of several subtasks shows this one. `gone` is split or dropped."""


@dataclass(frozen=True, slots=True)
class SubtaskMap:
    """The cells in the order in which subtasks should start, and how many subtasks are in each state."""

    cells: Sequence[State]
    counts: dict[State, int]
    each: int
    """How many subtasks one cell stands for."""


def subtask_map(state: RunState, room: int, *, alive: bool = True) -> SubtaskMap:
    """A map of at most `room` cells. Where no process runs it, nothing is under way."""
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
    """The subtasks in each state. Only those under way are looked at one by one."""
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
