"""What is done about a failure: one table, and the numbers beside it.

The ladder: what passes by itself is retried with backoff and costs no attempt; work that does not merge is done once
more on the new base; the rest goes to the planner, which tries another approach or splits the task; past the limits a
human is asked.
"""

from dataclasses import dataclass
from functools import partial
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
    what: str
    """What it is, for people."""


PASSES, RESOLVE, DECIDE = (
    partial(Rung, counts=False, first="retry"),
    partial(Rung, counts=True, first="resolve"),
    partial(Rung, counts=True, first="planner"),
)

LADDER: dict[FailureKind, Rung] = {
    "transient": PASSES(what="the model's service: limits, overload, a broken connection or stream"),
    "infrastructure": PASSES(what="ours or the machine's: worktrees, boxes, disk"),
    "crash": PASSES(what="a bug of ours; the trace is kept"),
    "configuration": PASSES(what="a wrong key, an unknown model; it concerns the whole run"),
    "protocol": DECIDE(what="answers that are none: no tool, malformed input, the same action again and again"),
    "tool": DECIDE(what="a tool or command the worker needs does not do its job"),
    "check": DECIDE(what="an acceptance check failed, or a guard did on the base, before any work was done"),
    "vacuous": DECIDE(what="an acceptance check passed before any work was done"),
    "empty": DECIDE(what="claimed done, nothing changed"),
    "bounds": DECIDE(what="changed files that were not its to change, or that may not be committed"),
    "conflict": RESOLVE(what="does not merge with what landed meanwhile"),
    "integration": DECIDE(what="merges, but the merged tree is red"),
    "too_complex": DECIDE(what="more than one worker can do; or the conversation no longer fits"),
    "ambiguous": DECIDE(what="information is missing; the worker is blocked"),
    "refusal": DECIDE(what="the model refused"),
    "budget": DECIDE(what="turns, time, tokens or dollars of the attempt or its subtask are spent"),
    "spent": PASSES(what="the run's budget does not cover another call: the attempt goes on when there is more"),
    "other": DECIDE(what="none of these"),
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
