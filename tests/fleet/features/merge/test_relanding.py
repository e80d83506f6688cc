"""What a run that lands a result again begins with: limits, a name, and the work of others."""

from pathlib import Path

import pytest

from fleet.core.base.ids import RunId, is_slug
from fleet.core.plans.limits import Policy
from fleet.features.merge.relanding import relanding_name, relanding_policy, spent_budget
from tests.fleet.core.story import Story, plan_of

LIMITS = Policy(budget_dollars=2.0, budget_attempts=5, budget_minutes=1.0, answer_wait_s=600, reviewing="human")


@pytest.fixture
def played() -> Story:
    played = Story(LIMITS.model_copy(update={"reviewing": "none"}), plan_of("api", "docs"))
    played.model_is_called("api", 0.5)
    played.work_is_done("api", "docs")
    return played


def test_a_relanding_has_what_the_run_left_of_its_budgets(played: Story) -> None:
    policy = relanding_policy(played.state, 2, resolves=True, dollars=None, gate=True)
    assert (policy.budget_dollars, policy.budget_attempts, policy.budget_minutes) == (1.5, 3 + 2, None)
    assert (policy.in_order, policy.every_commit, policy.publishes) == (True, True, False)
    assert (policy.answer_wait_s, policy.check_base) == (0, True)


def test_a_budget_of_its_own_replaces_them_and_without_a_resolver_none_is_needed(played: Story) -> None:
    own = relanding_policy(played.state, 2, resolves=True, dollars=4.0, gate=True)
    assert (own.budget_dollars, own.budget_attempts) == (4.0, None)
    none = relanding_policy(played.state, 2, resolves=False, dollars=None, gate=True)
    assert (none.budget_dollars, none.budget_attempts, none.max_attempts) == (None, None, 1)


def test_a_spent_budget_is_found_and_minutes_are_none(played: Story) -> None:
    assert spent_budget(played.state) is None
    played.model_is_called("api", 1.5)
    assert str(spent_budget(played.state)) == "$2"


@pytest.mark.parametrize("review", ["none", "auto", "human"])
def test_changes_of_the_plan_are_reviewed_by_rules_where_the_plan_was_reviewed(review: str) -> None:
    played = Story(LIMITS.model_copy(update={"reviewing": review}), plan_of("api"))
    policy = relanding_policy(played.state, 1, resolves=True, dollars=None, gate=False)
    assert policy.reviewing == ("none" if review == "none" else "auto")


def test_a_name_says_what_is_landed_where_and_is_free(tmp_path: Path) -> None:
    assert relanding_name(tmp_path, RunId("r"), "feature/Über x") == "r-on-feature-ber-x"
    (tmp_path / "runs" / "r-on-main").mkdir(parents=True)
    assert relanding_name(tmp_path, RunId("r"), "main") == "r-on-main-2"
    assert is_slug(relanding_name(tmp_path, RunId("x" * 64), "y" * 200))
