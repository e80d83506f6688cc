"""The policy as a document has what decides in it, and the limits it is given."""

from fleet.core.plans.limits import Policy
from fleet.core.policy.remedies import LADDER
from fleet.read.policy_document import policy_view

UNNAMED = {"limits.subtask_dollars", "limits.subtask_tokens", "limits.subtask_minutes"}
BUDGETS = {"run.budget_dollars", "run.budget_tokens", "run.budget_minutes", "run.budget_attempts"}


def test_it_is_the_very_table_that_decides() -> None:
    ladder = {rung.kind: (rung.counts, rung.first) for rung in policy_view(Policy()).ladder}
    assert ladder == {kind: (rung.counts, rung.first) for kind, rung in LADDER.items()}


def test_limits_are_those_that_hold_and_what_has_none_says_so() -> None:
    limits = {row.key: row.limit for row in policy_view(Policy(max_attempts=7, answer_wait_s=120)).limits}
    assert (limits["limits.attempts"], limits["limits.answer_wait_minutes"]) == (7, 2)
    assert {key for key, limit in limits.items() if limit is None} == UNNAMED | BUDGETS
