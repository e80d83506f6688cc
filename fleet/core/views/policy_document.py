"""The policy as a document: what is done about which failure, what a subtask may say beforehand, and where it stops.

One source for `fleet explain-policy` and, compared by a test, for docs/recovery.md.
"""

from typing import Any

from fleet.core.plan import FailureAction
from fleet.core.policy import Policy
from fleet.core.remedies import LADDER

ACTIONS: dict[FailureAction, str] = {
    "replan": "the planner decides, with the evidence: another approach, a split, a question, or drop it",
    "retry": "tried again without the planner",
    "skip": "given up; what depends on it goes on without",
    "ask": "a human is asked",
    "abort": "the run ends",
}
"""What `failure_action` of a subtask means, where a failure counts."""


def explained(policy: Policy) -> dict[str, Any]:
    """What `fleet explain-policy --json` prints. Its keys are public."""
    return {
        "ladder": [
            {"kind": kind, "counts": rung.counts, "first": rung.first, "what": rung.what}
            for kind, rung in LADDER.items()
        ],
        "failure_action": dict(ACTIONS),
        "limits": [{"key": key, "limit": limit, "then": then} for key, limit, then in _limits(policy)],
    }


def _limits(policy: Policy) -> tuple[tuple[str, float | None, str], ...]:
    """Each bounds something, so that every run ends."""
    human = "a human is asked, the rest goes on"
    return (
        ("limits.attempts", policy.max_attempts, f"failures of a subtask that count; then {human}"),
        ("limits.retries", policy.max_retries, f"failures of a subtask that do not count; then {human}"),
        ("limits.depth", policy.max_depth, "splits of splits; a deeper one is refused, and the planner chooses again"),
        ("limits.subtask_dollars", policy.subtask_dollars, f"what a subtask may cost; then {human}"),
        ("limits.subtask_tokens", policy.subtask_tokens, f"what a subtask may use; then {human}"),
        ("limits.subtask_minutes", policy.subtask_minutes, f"how long a subtask may be worked at; then {human}"),
        ("planner.max_calls", policy.max_planner_calls, f"calls of the planner in a run; then {human}"),
        ("planner.max_failures", policy.max_planner_failures, f"calls that fail in a row; then {human}"),
        (
            "limits.answer_wait_minutes",
            policy.answer_wait_s / 60,
            "how long a run with nothing else to do waits for an answer; then it ends as partial, with exit code 1",
        ),
        (
            "limits.drain_minutes",
            policy.drain_s / 60,
            "how long running work may take after a first Ctrl-C; then it stops",
        ),
        (
            "models.ask_after_minutes",
            policy.service_wait_s / 60,
            "how long the models' service may fail all callers; then a human is asked, and everything waits",
        ),
        (
            "models.give_up_after_minutes",
            policy.service_lost_s / 60,
            "how long nobody may answer that; then the run ends as partial, with exit code 1",
        ),
        ("run.budget_dollars", policy.budget_dollars, "then no new call; what is close lands; exit code 4"),
        ("run.budget_tokens", policy.budget_tokens, "the same"),
        ("run.budget_minutes", policy.budget_minutes, "the same"),
        ("run.budget_attempts", policy.budget_attempts, "the same"),
    )
