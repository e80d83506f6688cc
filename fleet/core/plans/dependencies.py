"""The dependencies of subtasks as a graph: its cycles, chains and waves."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_

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


def ancestors(needs: Needs) -> Callable[[SubtaskId, SubtaskId], bool]:
    """Tells whether the first of two subtasks must land before the second. There must be no cycle.

    The ancestors of each are the bits of a number: as sets, those of a chain of 10,000 would take gigabytes.
    """
    bits: dict[SubtaskId, int] = {}
    above: dict[SubtaskId, int] = {}
    for bit, id_ in enumerate(TopologicalSorter(needs).static_order()):
        bits[id_] = bit
        above[id_] = reduce(or_, (above[need] | 1 << bits[need] for need in needs.get(id_, ())), 0)
    return lambda first, second: bool(above[second] >> bits[first] & 1)


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
