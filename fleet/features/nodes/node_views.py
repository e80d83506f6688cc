"""What a machine offers to the runs of others, and what they see of it, as `--json` prints it."""

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


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of the configuration, as it answers now. What it did not say is null."""

    name: str
    """As in `[nodes.NAME]`."""
    ok: bool
    """Whether a run could use it now."""
    problem: str
    """What keeps it from working."""
    fix: str
    """What to do about it."""
    in_run: str | None
    """What the run makes of it: `connected`, `drained`, `out` or `banned`; null where no run has it."""
    labels: Sequence[str]
    """What it has, by the configuration."""
    lands: bool
    """Whether its verdict on a merged tree counts."""
    workers: int | None
    """How many attempts of one run it works on at once."""
    checks: int | None
    """How many orders for checks of one run it has at once."""
    attempts_running: int | None = None
    """Attempts that it works on now, for all runs of all managers."""
    checks_running: int | None = None
    """The same of orders for checks."""
    reports: int | None = None
    """Finished reports on its disk that were not fetched yet."""
    host: str | None = None
    """What it calls itself."""
    version: str | None = None
    """Its version of fleet, which has to be this one."""
    protocol: int | None = None
    """Its version of the protocol of nodes."""
    processors: int | None = None
    """How many it may use."""
    memory_bytes: int | None = None
    """How much it has."""
    skew_s: float | None = None
    """How far its clock is ahead of this machine's, in seconds."""
    round_trip_s: float | None = None
    """How long a sign of life takes there and back, in seconds."""
    repositories: int | None = None
    """Repositories that it has a cache of."""
    commits: int | None = None
    """Commits that its caches were given."""
    cache_bytes: int | None = None
    """What caches and reports take of its disk."""


@dataclass(frozen=True, slots=True)
class CleanedNodeView:
    """What was deleted on a node."""

    node: str
    """As in `[nodes.NAME]`."""
    bytes: int
    """What became free on its disk."""
    in_use: int
    """Caches that stay, because a run uses them."""
