"""The views of `fleet node` and `fleet nodes`."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GreetingView:
    """The greeting of a node to a manager."""

    version: str
    """The version of fleet. It must match the manager's version."""
    protocol: int
    """The version of the node protocol."""
    processors: int
    """The number of processors it can use."""
    memory_bytes: int
    """The memory in bytes."""
    problems: Sequence[str]
    """The problems that must be fixed before the node can be used."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A configured node and its current state. Values that the node did not report are null."""

    name: str
    """NAME of its table `[nodes.NAME]`."""
    ok: bool
    """Whether a run can use it now."""
    problem: str
    """Why it can't be used, or empty if it can."""
    fix: str
    """How to fix the problem."""
    in_run: str | None
    """The status in the run: `connected`, `drained`, `unavailable` or `banned`, or null if it is not part of a run."""
    labels: Sequence[str]
    """The configured labels."""
    lands: bool
    """Whether its check results on merged trees are trusted."""
    workers: int | None
    """The maximum number of concurrent attempts per run."""
    checks: int | None
    """The maximum number of concurrent check orders per run."""
    attempts_running: int | None = None
    """The number of attempts running on it, for all runs of all managers."""
    checks_running: int | None = None
    """The number of check orders running on it, for all runs of all managers."""
    reports: int | None = None
    """The number of finished reports on its disk that were not fetched yet."""
    host: str | None = None
    """The host name."""
    version: str | None = None
    """The version of fleet. It must match the version on this machine."""
    protocol: int | None = None
    """The version of the node protocol."""
    processors: int | None = None
    """The number of processors it can use."""
    memory_bytes: int | None = None
    """The memory in bytes."""
    skew_s: float | None = None
    """The offset of its clock from this machine's clock, in seconds."""
    round_trip_s: float | None = None
    """The round-trip time of a heartbeat, in seconds."""
    repositories: int | None = None
    """The number of cached repositories."""
    commits: int | None = None
    """The number of commits in its caches."""
    cache_bytes: int | None = None
    """The disk space used by caches and reports, in bytes."""


@dataclass(frozen=True, slots=True)
class CleanedNodeView:
    """The result of cleaning a node."""

    node: str
    """NAME of its table `[nodes.NAME]`."""
    bytes: int
    """The disk space freed, in bytes."""
    in_use: int
    """The number of caches kept because a run uses them."""
