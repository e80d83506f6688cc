"""The nodes of a run, as its facts leave them."""

from dataclasses import dataclass

from fleet.core.state.kinds.node_facts import NodeConnected

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
    def takes_work(self) -> bool:
        return not self.out and not self.drained_by

    @property
    def lacks(self) -> frozenset[str]:
        """Workers that can't work there."""
        return frozenset(self.greeting.lacks) if self.greeting is not None else frozenset()

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.greeting.labels) if self.greeting is not None else frozenset()
