"""What a machine offers to the runs of others."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GreetingView:
    """What a machine tells a manager first."""

    version: str
    """The version of fleet, which has to be the manager's."""
    protocol: int
    """The version of the protocol of nodes."""
    processors: int
    """How many it may use."""
    memory_bytes: int
    """How much it has."""
    problems: Sequence[str]
    """What keeps it from working; nothing is sent to it before that is fixed."""
