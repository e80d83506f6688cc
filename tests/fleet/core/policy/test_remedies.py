"""The ladders of remedies and of models, and their numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.facts import facts as f
from fleet.core.facts.facts import FREE
from fleet.core.plans.limits import Policy
from fleet.core.plans.revision import Retry
from fleet.core.policy.ladder import ABILITY
from fleet.core.policy.remedies import LADDER, backoff
from tests.fleet.core.pretend import KINDS
from tests.fleet.core.story import Story, plan_of

LADDERS = {"coder": ("haiku", "sonnet", "opus")}
policies = st.builds(
    Policy, backoff_first_s=st.floats(0.001, 100), backoff_cap_s=st.floats(0.001, 3600), workers=st.just(1)
)


def test_every_kind_of_failure_has_its_rung() -> None:
    assert set(LADDER) == set(KINDS)


def test_what_passes_by_itself_costs_no_attempt_and_everything_else_does() -> None:
    free = {kind for kind in KINDS if not LADDER[kind].counts}
    assert free == {"transient", "infrastructure", "internal", "crash", "configuration", "spent"}
    assert {LADDER[kind].first for kind in free - {"internal"}} == {"retry"}
    assert LADDER["internal"].first == "aside"
    assert {LADDER[kind].first for kind in set(KINDS) - free - {"conflict"}} == {"planner"}
    assert LADDER["conflict"].first == "resolve"
    assert free == FREE, "history and policy disagree on what costs an attempt"


@given(policies, st.text(max_size=20), st.integers(1, 100_000))
def test_a_backoff_stays_between_a_tenth_of_its_ceiling_and_the_ceiling(
    policy: Policy, key: str, failures: int
) -> None:
    doubled = policy.backoff_first_s * 2 ** min(failures - 1, 200)
    ceiling = min(policy.backoff_cap_s, doubled)
    assert ceiling * 0.1 <= backoff(policy, key=key, failures=failures) <= ceiling * 1.000001


@given(policies, st.text(max_size=20), st.integers(1, 50))
def test_the_same_failure_always_waits_equally_long(policy: Policy, key: str, failures: int) -> None:
    assert backoff(policy, key=key, failures=failures) == backoff(policy, key=key, failures=failures)


def test_a_hundred_subtasks_that_fail_together_do_not_come_back_together() -> None:
    waits = {round(backoff(Policy(), key=f"r/s{number}", failures=3), 2) for number in range(100)}
    assert len(waits) > 80


def models(story: Story) -> list[str | None]:
    return [fact.model for fact in story.facts_of(f.AttemptStarted)]


def test_each_failure_of_ability_is_followed_by_the_next_model_and_the_last_one_stays() -> None:
    story = Story(Policy(ladders=LADDERS, max_attempts=9), plan_of("api", failure_action="retry"))
    for _ in range(4):
        story.attempt_fails("api")
        story.time_passes_to_the_next_wake()
    assert models(story) == ["haiku", "sonnet", "opus", "opus", "opus"]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ABILITY - {"configuration", "spent", "ambiguous", "internal"}))
def test_what_no_model_could_help_does_not_climb(kind: f.FailureKind) -> None:
    story = Story(Policy(ladders=LADDERS), plan_of("api", failure_action="retry"))
    story.attempt_fails("api", kind)
    story.time_passes_to_the_next_wake()
    assert set(models(story)) == {"haiku"}
    assert len(models(story)) == 2


def test_a_model_of_the_plan_is_the_one() -> None:
    story = Story(Policy(ladders=LADDERS), plan_of("api", failure_action="retry", model="own"))
    story.attempt_fails("api")
    story.time_passes_to_the_next_wake()
    assert models(story) == ["own", "own"]


def test_without_a_ladder_the_worker_knows_its_model() -> None:
    story = Story(Policy(ladders=LADDERS), plan_of("api", worker="other"))
    assert models(story) == [None]


def test_an_effort_of_the_plan_is_that_of_every_attempt() -> None:
    story = Story(Policy(), plan_of("api", failure_action="retry", effort="low"))
    story.attempt_fails("api")
    story.time_passes_to_the_next_wake()
    assert [fact.effort for fact in story.facts_of(f.AttemptStarted)] == ["low", "low"]


def test_the_planner_may_ask_for_more_effort() -> None:
    story = Story(Policy(), plan_of("api"))
    story.attempt_fails("api")
    story.planner_answers(retry=(Retry(id="api", guidance="harder", effort="max"),))
    assert [fact.effort for fact in story.facts_of(f.AttemptStarted)] == [None, "max"]
