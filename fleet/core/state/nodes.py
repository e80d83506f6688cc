"""The nodes of a run, as its facts leave them."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.state.kinds.run_facts import NodeConnected

NOT_CONNECTED = "not connected yet"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A machine beside the manager's."""

    name: str
    out: str = NOT_CONNECTED
    """Why nothing is sent there; empty: it is connected."""
    banned: bool = False
    """Whether it sent what it may not send: it gets nothing more in this run."""
    drained_by: str = ""
    """Who asked that nothing new goes there; empty: no one."""
    added: bool = False
    """Whether a person asked for it while the run worked, and the engine has not connected it yet."""
    greeting: NodeConnected | None = None
    """What it said when it connected last."""
    losses: int = 0
    """How often it was lost after it had connected."""

    @property
    def part_of(self) -> str:
        """The cluster that it is a machine of, which may be drained as a whole."""
        return self.greeting.part_of if self.greeting is not None else ""

    @property
    def lacks(self) -> frozenset[str]:
        """Workers that can't work there."""
        return frozenset(self.greeting.lacks) if self.greeting is not None else frozenset()

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.greeting.labels) if self.greeting is not None else frozenset()


def drained_by(nodes: Mapping[str, NodeState], node: NodeState) -> str:
    """Who asked that nothing new goes to a node, or to the cluster that it is part of; empty: no one."""
    cluster = nodes.get(node.part_of)
    return node.drained_by or (cluster.drained_by if cluster is not None else "")


def listed(nodes: Mapping[str, NodeState]) -> list[NodeState]:
    """The nodes by name, without the clusters whose machines are among them."""
    clusters = {node.part_of for node in nodes.values()}
    return [node for name, node in sorted(nodes.items()) if name not in clusters]
