"""Choose the machine for each order: a node with free slots, or this machine. Orders of a lost node are placed again.

Slots for workers and for checks are counted separately. Attempts that only this machine can run stay here, with the
reason in `stays`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from anyio import Event

from fleet.core.base.ids import RunId, Sha
from fleet.core.facts.facts import CheckRun, Failure
from fleet.core.plans.limits import HERE
from fleet.core.state.machines import lacks_program
from fleet.features.nodes.messages import dump_order
from fleet.features.nodes.node_orders import NodeLostError
from fleet.features.nodes.remote_node import RemoteNode
from fleet.ports.agents import Meter
from fleet.ports.orders import (
    AttemptOrder,
    AttemptResult,
    ChecksOrder,
    Node,
    NodeFailedError,
    Progress,
    Tell,
    WorktreeReady,
)
from fleet.ports.worktrees import EffectError

# ---- choice ----------------------------------------------------------------------------------------------------------
# A pure choice among the available machines. `Placement` calls it, and waits if it returns None.


@dataclass(frozen=True, slots=True)
class NodeMachine:
    """A machine, with the properties relevant to the choice."""

    name: str
    """The name, or empty for the manager's machine."""
    free: float
    """The fraction of its slots that are free; negative if orders wait for a slot."""
    labels: frozenset[str] = frozenset()
    has_base: bool = False
    """Whether it has the objects of the order."""
    holds: bool = False
    """Whether it already has the order from an earlier connection."""
    takes_work: bool = True
    """Whether it accepts new orders."""


def choose_for_attempt(
    here: NodeMachine, nodes: Sequence[NodeMachine], wanted: Collection[str] = ()
) -> NodeMachine | None:
    """Choose a machine for an attempt. Nodes with a free slot come before this machine, those without labels first.

    A node that already has the order keeps it, even if it is drained. None means to wait for a free slot.
    """
    if (holder := next((node for node in nodes if node.holds), None)) is not None:
        return holder
    able = [node for node in nodes if node.takes_work and node.labels.issuperset(wanted)]
    if free := [node for node in able if node.free > 0]:
        return max(free, key=lambda node: (-len(node.labels.difference(wanted)), node.has_base, node.free))
    if here.labels.issuperset(wanted) and (here.free > 0 or not able):
        return here
    return None


def choose_for_checks(
    here: NodeMachine, nodes: Sequence[NodeMachine], wanted: Collection[str] = ()
) -> NodeMachine | None:
    """Choose the machine with the most free slots. Checks never wait for a slot; None means to wait for a label."""
    if (holder := next((node for node in nodes if node.holds), None)) is not None:
        return holder
    able = [node for node in nodes if node.takes_work and node.labels.issuperset(wanted)]
    if here.labels.issuperset(wanted):
        able.append(here)
    return max(able, key=lambda node: node.free, default=None)


# ---- placement -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Placement:
    """Satisfies `Node` with this machine and its nodes."""

    run: RunId
    local: Node
    local_workers: int
    local_checks: int
    nodes: Sequence[RemoteNode]
    """The nodes. More may join during the run."""
    stays: Mapping[str, str]
    """Why the attempts of a worker stay on this machine, by worker."""
    labels: frozenset[str] = frozenset()
    """The labels of this machine."""
    _here: int = 0
    _checking_here: int = 0
    _freed: Event = field(default_factory=Event)
    _asked: Counter[str] = field(default_factory=Counter)

    async def attempt(self, order: AttemptOrder, meter: Meter, tell: Tell) -> AttemptResult:
        key = f"{self.run}/attempt/{order.brief.subtask.id}/{order.brief.attempt}"
        while True:
            node = await self._place_attempt(key, order, meter)
            if node is None:
                self._here += 1
                try:
                    return await self.local.attempt(order, meter, tell)
                finally:
                    self._here -= 1
                    self.wake()
            begun = _Begun(tell)
            try:
                return await node.attempt(key, order, meter, begun.tell)
            except NodeLostError as lost:
                if begun.has_begun:  # its worker may still run there, so the retry is a new attempt
                    summary = f"lost node {node.name} during the attempt: {lost}"
                    raise NodeFailedError(Failure(kind="infrastructure", summary=summary)) from lost
            finally:
                self.wake()

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        if self.nodes:
            digest = sha256(dump_order(order)).hexdigest()[:24]
            self._asked[digest] += 1
            key = f"{self.run}/checks/{digest}/{self._asked[digest]}"
            while (node := await self._place_checks(key, order)) is not None:
                try:
                    return await node.check(key, order)
                except NodeLostError:
                    continue
        self._checking_here += 1
        try:
            return await self.local.check(order)
        finally:
            self._checking_here -= 1

    def wake(self) -> None:
        """Choose again for waiting orders, because a slot is free or the nodes changed."""
        self._freed.set()
        self._freed = Event()

    # ---- choosing

    async def _place_attempt(self, key: str, order: AttemptOrder, meter: Meter) -> RemoteNode | None:
        """Choose the node for an attempt, or None for this machine. Waits for a free slot if needed."""
        if order.worker in self.stays or not meter.may_call():
            return None
        while True:
            here = NodeMachine(HERE, 1 - self._here / self.local_workers, self.labels)
            able = [node for node in self._well() if not _lacks(node, order.worker)]
            machines = [_machine(node, key, order.base, _free(node.at_work, node.workers)) for node in able]
            chosen = choose_for_attempt(here, machines, order.labels)
            if chosen is not None:
                return self._name(chosen.name)
            self._require_program(order)
            await self._freed.wait()

    def _require_program(self, order: AttemptOrder) -> None:
        """Raise `EffectError` if the worker's program is missing on all machines with the labels."""
        with_labels = [node for node in self.nodes if node.labels.issuperset(order.labels)]
        lacking = [node.name for node in with_labels if _lacks(node, order.worker)]
        if not lacking or any(node.name not in lacking and not node.banned for node in with_labels):
            return
        why = (
            "Install the program on a machine with these labels, or add the labels to a machine that has it. "
            "`fleet nodes` lists machines and labels."
        )
        summary = lacks_program(order.worker, lacking, order.labels)
        raise EffectError(Failure(kind="tool", summary=summary, evidence=why))

    async def _place_checks(self, key: str, order: ChecksOrder) -> RemoteNode | None:
        """Choose the node for checks, or None for this machine. Waits for a node with the labels if needed."""
        while True:
            well = [node for node in self._well() if node.checks and (node.lands or not order.lands)]
            free = 1 - self._checking_here / self.local_checks if self.local_checks else 0.0
            machines = [_machine(node, key, order.commit, _free(node.checking, node.checks)) for node in well]
            chosen = choose_for_checks(NodeMachine(HERE, free, self.labels), machines, order.labels)
            if chosen is not None:
                return self._name(chosen.name)
            await self._freed.wait()

    def _well(self) -> list[RemoteNode]:
        return [node for node in self.nodes if not node.out]

    def _name(self, name: str) -> RemoteNode | None:
        return next((node for node in self.nodes if node.name == name), None)


@dataclass(slots=True)
class _Begun:
    """Records whether an attempt has started."""

    passed_on: Tell
    has_begun: bool = False

    async def tell(self, progress: Progress) -> None:
        self.has_begun = self.has_begun or isinstance(progress, WorktreeReady)
        await self.passed_on(progress)


def _free(taken: int, slots: int | None) -> float:
    return 1 - taken / slots if slots else 0.0


def _machine(node: RemoteNode, key: str, commit: Sha, free: float) -> NodeMachine:
    holds = node.connection is not None and key in node.connection.opened.orders
    has = node.connection is not None and commit in node.connection.commits
    return NodeMachine(node.name, free, node.labels, has_base=has, holds=holds, takes_work=not node.drained)


def _lacks(node: RemoteNode, worker: str) -> bool:
    """Return whether the program of a worker is missing on a node."""
    return node.connection is not None and worker in node.connection.opened.lacks
