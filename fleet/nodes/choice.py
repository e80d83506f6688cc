"""Which machine an order goes to: a pure choice among those that there are. `placement.py` asks it, and waits."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, as far as the choice concerns it."""

    name: str
    """Empty: the manager's own."""
    free: float
    """The share of its slots that is free; below zero where orders wait for one."""
    labels: frozenset[str] = frozenset()
    has_base: bool = False
    """Whether it has the objects that the order is about."""
    holds: bool = False
    """Whether it has the order already, from a connection before this one."""
    takes_work: bool = True
    """Whether it gets anything new."""


def choose_for_attempt(here: Machine, nodes: Sequence[Machine], wanted: Collection[str] = ()) -> Machine | None:
    """The machine for an attempt: a node with a free slot before this machine, plain ones before those with labels.

    A node that holds the order already is asked for it, even if it gets nothing new. None: wait until there is room.
    """
    if (holder := next((node for node in nodes if node.holds), None)) is not None:
        return holder
    able = [node for node in nodes if node.takes_work and node.labels.issuperset(wanted)]
    if free := [node for node in able if node.free > 0]:
        return max(free, key=lambda node: (-len(node.labels.difference(wanted)), node.has_base, node.free))
    if here.labels.issuperset(wanted) and (here.free > 0 or not able):
        return here
    return None


def choose_for_checks(here: Machine, nodes: Sequence[Machine], wanted: Collection[str] = ()) -> Machine | None:
    """The machine for checks: the one with the most room. They never wait for a slot, only for the labels (None)."""
    if (holder := next((node for node in nodes if node.holds), None)) is not None:
        return holder
    able = [node for node in nodes if node.takes_work and node.labels.issuperset(wanted)]
    if here.labels.issuperset(wanted):
        able.append(here)
    return max(able, key=lambda node: node.free, default=None)
