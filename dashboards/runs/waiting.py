"""What waits for each open subtask, and the longest chain of open subtasks: the run takes at least as long as that."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Plan

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
