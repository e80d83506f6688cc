"""What is done about a failure: one table, and the numbers beside it.

The ladder: what passes by itself is retried with backoff and costs no attempt; work that does not merge is done once
more on the new base; the rest goes to the planner, which tries another approach or splits the task; past the limits a
human is asked.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, get_args

from fleet.core.facts import FailureKind
from fleet.core.policy import Policy


@dataclass(frozen=True, slots=True)
class Rung:
    """What a kind of failure costs, and who decides next."""

    counts: bool
    """Whether it uses up one of the subtask's attempts."""
    first: Literal["retry", "resolve", "planner"]


PASSES = Rung(counts=False, first="retry")
RESOLVE = Rung(counts=True, first="resolve")
DECIDE = Rung(counts=True, first="planner")

LADDER: dict[FailureKind, Rung] = {
    "transient": PASSES,
    "infrastructure": PASSES,
    "crash": PASSES,
    "configuration": PASSES,
    "protocol": DECIDE,
    "tool": DECIDE,
    "check": DECIDE,
    "vacuous": DECIDE,
    "empty": DECIDE,
    "bounds": DECIDE,
    "conflict": RESOLVE,
    "integration": DECIDE,
    "too_complex": DECIDE,
    "ambiguous": DECIDE,
    "refusal": DECIDE,
    "budget": DECIDE,
    "spent": PASSES,
    "other": DECIDE,
}
LONGEST_CLIMB = 64  # doublings; any cap is reached long before, and a float has no room for a thousand
ANEW = (
    "An earlier attempt passed its own checks, but its change does not merge with what landed since its base. The "
    "evidence names the paths, what landed there, and what the attempt changed. Do the subtask anew on this base: keep "
    "what landed, and bring this subtask's change into it so that both do what they were meant to."
)
"""What a worker is told who makes work fit a new base."""
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


def backoff(policy: Policy, *, key: str, failures: int) -> float:
    """Seconds to wait after the n-th failure in a row: exponential, with full jitter that `key` determines."""
    ceiling = min(policy.backoff_cap_s, policy.backoff_first_s * 2.0 ** min(failures - 1, LONGEST_CLIMB))
    spread = int.from_bytes(sha256(f"{key}:{failures}".encode()).digest()[:4]) / 2**32
    return ceiling * (0.1 + 0.9 * spread)
