"""Which model an attempt is given: the plan's word, else the worker's ladder, a rung up for each failure of ability."""

from fleet.core.facts import FailureKind
from fleet.core.plan import Subtask
from fleet.core.policy import Policy
from fleet.core.state import SubtaskState

ABILITY: frozenset[FailureKind] = frozenset({"check", "empty", "protocol", "too_complex", "refusal", "budget"})
"""What a more able model may be spared. A wrong plan, a broken machine or a merge is nobody's lack of ability."""


def model_for(policy: Policy, spec: Subtask, subtask: SubtaskState) -> str | None:
    """The model of the subtask's next attempt; None: the one that its worker uses."""
    ladder = policy.ladders.get(spec.worker, ())
    if spec.model is not None or not ladder:
        return spec.model
    lacking = sum(
        attempt.worker == spec.worker and attempt.failure is not None and attempt.failure.kind in ABILITY
        for attempt in subtask.attempts
    )
    return ladder[min(lacking, len(ladder) - 1)]
