"""Facts about nodes: the other machines that work for a run, and what people asked of them."""

from typing import Literal

from fleet.core.state.kinds.fact_parts import Happened


class NodeConnected(Happened):
    """A node greeted and is ready: from here on it gets work."""

    kind: Literal["node_connected"] = "node_connected"
    node: str
    version: str
    """Its version of fleet."""
    host: str
    """What it calls itself. Untrusted."""
    processors: int
    """How many it may use."""
    memory_bytes: int
    """How much it has."""
    workers: int
    """How many attempts it works on at once."""
    checks: int
    """How many orders for checks it has at once."""
    labels: tuple[str, ...] = ()
    """What the configuration says that it has."""
    lands: bool = False
    """Whether its verdict on a merged tree counts."""
    skew_s: float = 0.0
    """How far its clock is ahead of the manager's, in seconds."""
    commits: int = 0
    """The commits of the repository that it had already."""
    lacks: tuple[str, ...] = ()
    """Workers that can't work there: their program is not installed."""
    part_of: str = ""
    """The cluster that it is a machine of."""


class NodeLost(Happened):
    """A node can't be used any more, or not yet."""

    kind: Literal["node_lost"] = "node_lost"
    node: str
    why: str
    banned: bool = False
    """Whether it sent what it may not send: it gets nothing more in this run."""


class NodeAddRequested(Happened):
    """A person wants a node to join that is in the configuration by now. The engine reads `[nodes]` again."""

    kind: Literal["node_add_requested"] = "node_add_requested"
    node: str
    by: str


class NodeDrained(Happened):
    """A person wants nothing new on a node. What runs there ends there."""

    kind: Literal["node_drained"] = "node_drained"
    node: str
    by: str


class NodeUndrained(Happened):
    """A person lets a drained node get work again."""

    kind: Literal["node_undrained"] = "node_undrained"
    node: str
    by: str


NodeFact = NodeConnected | NodeLost | NodeAddRequested | NodeDrained | NodeUndrained
