"""The policy as a document: what is done about each failure, what a subtask may decide in advance, and the limits.

The only source of `fleet explain-policy` and, compared by a test, of docs/recovery.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import FailureAction
from fleet.core.policy.remedies import LADDER, Rung

ACTIONS: Mapping[FailureAction, str] = {
    "replan": "the planner decides, with the evidence: an alternative, a split, a question, or drop it",
    "retry": "retried without the planner",
    "skip": "given up; what depends on it continues without",
    "ask": "a human is asked",
    "abort": "the run ends",
}
"""The meaning of each `failure_action` of a subtask, for failures that count."""


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit, and what happens when it is reached."""

    key: str
    """Its key in the configuration."""
    limit: float | None
    """Null if there is no limit."""
    then: str
    """What it limits, and what happens then."""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """What is done about failures."""

    ladder: tuple[Rung, ...]
    """By class of failure."""
    failure_action: Mapping[FailureAction, str]
    """What each `failure_action` of a subtask means."""
    limits: tuple[LimitView, ...]
    """The limits that end retries, waits and spending."""


def policy_view(policy: Policy) -> PolicyView:
    return PolicyView(
        ladder=tuple(LADDER.values()),
        failure_action=ACTIONS,
        limits=_limits(policy),
    )


def _limits(policy: Policy) -> tuple[LimitView, ...]:
    human = "a human is asked, the rest continues"
    rows = (
        ("limits.attempts", policy.max_attempts, f"failures of a subtask that count; then {human}"),
        ("limits.retries", policy.max_retries, f"failures of a subtask that do not count; then {human}"),
        ("limits.depth", policy.max_depth, "splits of splits; a deeper one is refused, and the planner chooses again"),
        ("limits.subtask_dollars", policy.subtask_dollars, f"what a subtask may cost; then {human}"),
        ("limits.subtask_tokens", policy.subtask_tokens, f"what a subtask may use; then {human}"),
        ("limits.subtask_minutes", policy.subtask_minutes, f"how long a subtask may be worked on; then {human}"),
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
            "how long that question may stay unanswered; then the run ends as partial, with exit code 1",
        ),
        ("run.budget_dollars", policy.budget_dollars, "then no new calls; finished work still lands; exit code 4"),
        ("run.budget_tokens", policy.budget_tokens, "the same"),
        ("run.budget_minutes", policy.budget_minutes, "the same"),
        ("run.budget_attempts", policy.budget_attempts, "the same"),
    )
    return tuple(LimitView(*row) for row in rows)
