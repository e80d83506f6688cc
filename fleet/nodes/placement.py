"""Chooses where an order is done: on a node that has room for it, or here. A lost node's work goes to another.

Slots for workers and for checks are counted apart. What only this machine can do stays here, and the reason can be
asked for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from anyio import Event

from fleet.core.base.ids import RunId, Sha
from fleet.core.state.facts import CheckRun, Failure
from fleet.nodes.payloads import dump_order
from fleet.nodes.remote_node import RemoteNode
from fleet.ports.nodes import (
    AttemptMeter,
    AttemptOrder,
    AttemptResult,
    Began,
    ChecksOrder,
    Node,
    NodeLostError,
    Progress,
    Tell,
)
from fleet.ports.worktrees import EffectError


@dataclass(slots=True)
class Placement:
    """Satisfies `Node`: this machine and others behind one door."""

    run: RunId
    local: Node
    local_workers: int
    local_checks: int
    nodes: Sequence[RemoteNode]
    stays: Mapping[str, str]
    """Why the attempts of a worker stay on this machine, by worker."""
    _here: int = 0
    _checking_here: int = 0
    _freed: Event = field(default_factory=Event)
    _asked: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for node in self.nodes:
            node.freed = self._free

    async def attempt(self, order: AttemptOrder, meter: AttemptMeter, tell: Tell) -> AttemptResult:
        key = f"{self.run}/attempt/{order.brief.subtask.id}/{order.brief.attempt}"
        while True:
            node = await self._place_attempt(key, order, meter)
            if node is None:
                self._here += 1
                try:
                    return await self.local.attempt(order, meter, tell)
                finally:
                    self._here -= 1
                    self._free()
            begun = _Begun(tell)
            try:
                return await node.attempt(key, order, begun.tell)
            except NodeLostError as lost:
                if begun.has_begun:  # its worker may still run there: it is done again under a number of its own
                    summary = f"node {node.name} was lost while it worked: {lost}"
                    raise EffectError(Failure(kind="infrastructure", summary=summary)) from lost
            finally:
                self._free()

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        digest = sha256(dump_order(order)).hexdigest()[:24]
        self._asked[digest] += 1
        key = f"{self.run}/checks/{digest}/{self._asked[digest]}"
        while (node := self._place_checks(key, lands=order.lands)) is not None:
            try:
                return await node.check(key, order)
            except NodeLostError:
                continue
        self._checking_here += 1
        try:
            return await self.local.check(order)
        finally:
            self._checking_here -= 1

    # ---- choosing

    async def _place_attempt(self, key: str, order: AttemptOrder, meter: AttemptMeter) -> RemoteNode | None:
        """The node for an attempt; None for this machine. Waits for room."""
        if order.worker in self.stays or not meter.may_call():
            return None
        if (holder := next((node for node in self._well() if _holds(node, key)), None)) is not None:
            return holder
        while True:
            free = [node for node in self._well() if node.free_workers > 0]
            if free:
                return max(free, key=lambda node: (_has(node, order.base), node.free_workers))
            if self._here < self.local_workers or not self._well():
                return None
            await self._freed.wait()

    def _place_checks(self, key: str, *, lands: bool) -> RemoteNode | None:
        """The machine with the most room for checks, this one included."""
        well = [node for node in self._well() if node.checks and (node.lands or not lands)]
        if (holder := next((node for node in well if _holds(node, key)), None)) is not None:
            return holder
        best = max(well, key=lambda node: node.free_checks, default=None)
        free_here = 1 - self._checking_here / self.local_checks if self.local_checks else 0.0
        return best if best is not None and best.free_checks >= free_here else None

    def _well(self) -> list[RemoteNode]:
        return [node for node in self.nodes if not node.out]

    def _free(self) -> None:
        self._freed.set()
        self._freed = Event()


@dataclass(slots=True)
class _Begun:
    """Remembers whether an attempt has begun."""

    passed_on: Tell
    has_begun: bool = False

    async def tell(self, progress: Progress) -> None:
        self.has_begun = self.has_begun or isinstance(progress, Began)
        await self.passed_on(progress)


def _holds(node: RemoteNode, key: str) -> bool:
    return node.connection is not None and key in node.connection.opened.orders


def _has(node: RemoteNode, commit: Sha) -> bool:
    return node.connection is not None and commit in node.connection.commits
