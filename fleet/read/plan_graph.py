"""The plan as a graph, what waits for each of its subtasks, and its versions with what each of them changed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.plans.plan import Plan, Subtask, waves
from fleet.core.policy.requests import unapproved
from fleet.core.state.state import RunState, Version
from fleet.core.state.status import Status, status_of
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


def closed(state: RunState) -> Set:
    """The same value as long as none was closed."""
    return state.subtasks.marked(Mark.CLOSED)


def waiting_in(state: RunState) -> Waiting:
    """Those of a run's plan. It depends on the plan and on which subtasks are closed."""
    open_, bits = state.subtasks.all & ~closed(state), state.subtasks.plan.bits
    return waiting(state.plan, {id_ for id_ in state.plan.ids if open_ >> bits[id_] & 1})


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


def graph_in(state: RunState) -> list[Node]:
    """The same for the plan of a run. What a subtask was split from and its area are as old as the plan's version."""
    return graph(state.plan, {id_: subtask.parent or subtask.area for id_, subtask in state.subtasks.items()})


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with a subtask of the plan."""

    status: Status
    awaits_approval: bool
    attempts: int
    landed: Sha | None
    """The commit that landed; None if none did."""


def standing(state: RunState, id_: SubtaskId, now: float) -> Standing:
    subtask = state.subtasks[id_]
    awaits_approval = bool(unapproved(state) >> state.subtasks.plan.bits[id_] & 1)
    return Standing(status_of(state, id_, now), awaits_approval, len(subtask.attempts), subtask.landed)


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
