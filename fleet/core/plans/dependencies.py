"""The dependencies of subtasks as a graph: its cycles, chains and waves."""

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Plan, Subtask

Needs = Mapping[SubtaskId, Collection[SubtaskId]]
"""The subtasks that each subtask depends on."""


def needs_of(subtasks: Iterable[Subtask]) -> Needs:
    return {subtask.id: subtask.depends_on for subtask in subtasks}


def find_cycle(needs: Needs) -> tuple[SubtaskId, ...]:
    """One cycle of dependencies, with its first id repeated at its end, or nothing. Self-dependencies do not count."""
    try:
        TopologicalSorter({id_: [need for need in ids if need != id_] for id_, ids in needs.items()}).prepare()
    except CycleError as error:
        return tuple(reversed(error.args[1]))
    return ()


def ancestors(needs: Needs) -> dict[SubtaskId, frozenset[SubtaskId]]:
    """All subtasks that must land before each. There must be no cycle."""
    above: dict[SubtaskId, frozenset[SubtaskId]] = {}
    for id_ in TopologicalSorter(needs).static_order():
        direct = needs.get(id_, ())
        above[id_] = frozenset(direct).union(*(above[need] for need in direct))
    return above


def longest_chains(needs: Needs, lengths: Mapping[SubtaskId, float] | None = None) -> dict[SubtaskId, float]:
    """The length of the longest chain that ends with each subtask, which is 1 long without `lengths`. No cycles."""
    ends: dict[SubtaskId, float] = {}
    for id_ in TopologicalSorter(needs).static_order():
        length = 1.0 if lengths is None else lengths.get(id_, 0.0)
        ends[id_] = max((ends[need] for need in needs.get(id_, ())), default=0.0) + length
    return ends


def waves(plan: Plan) -> list[list[SubtaskId]]:
    """The subtasks by the number of subtasks that must land before them, one after the other."""
    depths = longest_chains(needs_of(plan.subtasks))
    ordered: list[list[SubtaskId]] = [[] for _ in range(int(max(depths.values(), default=0)))]
    for id_ in plan.ids:
        ordered[int(depths[id_]) - 1].append(id_)
    return ordered
