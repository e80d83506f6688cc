"""Assigns attempts to machines by labels, and explains why an attempt has to wait for one.

A machine is the manager's (`HERE`) or a node. Derived from the run's limits and the nodes' reports.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleet.core.plans.limits import HERE, MachineOffer, Machines, labels_text
from fleet.core.plans.plan import Subtask
from fleet.core.state.state import NodeState, RunState, drained_by
from fleet.core.state.subtasks import Attempt


@dataclass(frozen=True, slots=True)
class MachineSlot:
    """A machine that new attempts may go to."""

    name: str
    slots: int | None
    """Maximum number of concurrent attempts. None: limited only by the workers of the run."""


def wanted_labels(state: RunState, spec: Subtask) -> frozenset[str]:
    """Return the labels that a machine needs for attempts at a subtask. Rehearsals stay on this machine."""
    if state.rehearsal is not None or state.relanding is not None:
        return frozenset()
    return state.policy.machines.wanted(spec)


def check_labels(state: RunState, spec: Subtask) -> frozenset[str]:
    """Return the labels required of a machine for the checks of a subtask: its own, without those of its worker."""
    if state.rehearsal is not None or state.relanding is not None:
        return frozenset()
    return frozenset(spec.labels)


def labels_here(state: RunState) -> frozenset[str]:
    """The labels of the manager's machine."""
    offer = state.policy.machines.offers.get(HERE)
    return frozenset(offer.labels) if offer is not None else frozenset()


def known_machines(state: RunState) -> Machines:
    """Return the machines of a run: from its configuration, and added since."""
    machines = state.policy.machines
    added = {
        node.name: MachineOffer(labels=seen.labels, lands=seen.lands, works=seen.workers > 0)
        for node in state.nodes.values()
        if (seen := node.greeting) is not None
    }
    return machines.model_copy(update={"offers": {**machines.offers, **added}}) if added else machines


def eligible_machines(state: RunState, spec: Subtask) -> tuple[MachineSlot, ...]:
    """The machines that a new attempt at a subtask may go to now."""
    wanted, stays = wanted_labels(state, spec), spec.worker in state.policy.machines.stays
    here = (MachineSlot(HERE, None),) if wanted <= labels_here(state) else ()
    able = [node for node in state.nodes.values() if wanted <= node.labels and spec.worker not in node.lacks]
    nodes = [] if stays else [node for node in able if not node.out and not drained_by(state.nodes, node)]
    return (*here, *(MachineSlot(node.name, node.greeting.workers) for node in nodes if node.greeting is not None))


def program_problem(state: RunState, spec: Subtask) -> str:
    """Return why no machine with the labels of a subtask can ever run it. Empty if one can or might.

    The attempt starts and fails with this reason, so that a planner or a human decides.
    """
    wanted = wanted_labels(state, spec)
    if not wanted or wanted <= labels_here(state):
        return ""
    offers = known_machines(state).offers.items()
    named = [name for name, offer in offers if name != HERE and offer.works and wanted <= {*offer.labels}]
    nodes = [state.nodes.get(name, NodeState(name)) for name in named]
    lacking = [node.name for node in nodes if spec.worker in node.lacks]
    if not lacking or any(spec.worker not in node.lacks and not node.banned for node in nodes):
        return ""
    return lacks_program(spec.worker, lacking, wanted)


def lacks_program(worker: str, nodes: Iterable[str], labels: frozenset[str]) -> str:
    """That a worker can't work on any of these nodes."""
    where = ", ".join(f"node {name}" for name in nodes)
    return f"worker {worker!r} is not installed on {where}, and no other machine has {labels_text(labels)}"


class Occupancy:
    """Number of used slots on machines with labels, while further attempts are started."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._held: list[frozenset[str]] | None = None

    def take(self, spec: Subtask) -> bool:
        """Reserve a slot for an attempt. Return False if no suitable machine has one."""
        if not wanted_labels(self._state, spec):
            return True
        if program_problem(self._state, spec):
            return True
        if not _has_slot(eligible_machines(self._state, spec), self.held):
            return False
        self.held.append(_places(self._state, spec, None))
        return True

    @property
    def held(self) -> list[frozenset[str]]:
        """For each running attempt the machines that it may be on."""
        if self._held is None:
            self._held = list(_held(self._state))
        return self._held


def machine_problem(state: RunState, spec: Subtask) -> str:
    """Return why no machine is available for a subtask now. Empty if one is."""
    wanted = wanted_labels(state, spec)
    if not wanted:
        return ""
    if (never := known_machines(state).problem(spec)) is not None:
        return never
    if lacks := program_problem(state, spec):
        return lacks
    free = eligible_machines(state, spec)
    if _has_slot(free, list(_held(state))):
        return ""
    if free:
        taken = ", ".join(f"{room.name} ({room.slots} of {room.slots} in use)" for room in free)
        return f"waits for a free slot on a machine with {labels_text(wanted)}: {taken}"
    return f"waits for a machine with {labels_text(wanted)}: {'; '.join(_absent(state, spec.worker, wanted))}"


def _absent(state: RunState, worker: str, wanted: frozenset[str]) -> Iterator[str]:
    """Return why each node with the labels is unavailable."""
    for name, offer in known_machines(state).offers.items():
        if name != HERE and wanted <= {*offer.labels}:
            node = state.nodes.get(name, NodeState(name))
            if worker in node.lacks:
                yield f"worker {worker!r} is not installed on node {name}"
            else:
                yield f"node {name} is {'drained' if drained_by(state.nodes, node) else f'unavailable: {node.out}'}"


def _has_slot(free: Iterable[MachineSlot], held: list[frozenset[str]]) -> bool:
    """Return whether there is a free slot in addition to attempts that can only run on these machines."""
    slots, names = 0, set[str]()
    for room in free:
        if room.slots is None:
            return True
        slots += room.slots
        names.add(room.name)
    return sum(1 for places in held if places and places <= names) < slots


def _held(state: RunState) -> Iterator[frozenset[str]]:
    """Return the possible machines of each running attempt: its own machine, or those it waits for."""
    for subtask, attempt in state.running():
        spec = state.spec(subtask.id)
        if attempt.working or wanted_labels(state, spec):
            yield _places(state, spec, attempt)


def _places(state: RunState, spec: Subtask, attempt: Attempt | None) -> frozenset[str]:
    if attempt is not None and attempt.working:
        return frozenset({attempt.node})
    return frozenset(room.name for room in eligible_machines(state, spec))
