"""The ladder of remedies, and its numbers."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.core.facts import FREE
from fleet.core.policy import Policy
from fleet.core.remedies import KINDS, LADDER, backoff

policies = st.builds(
    Policy, backoff_first_s=st.floats(0.001, 100), backoff_cap_s=st.floats(0.001, 3600), workers=st.just(1)
)


def test_every_kind_of_failure_has_its_rung() -> None:
    assert set(LADDER) == set(KINDS)


def test_what_passes_by_itself_costs_no_attempt_and_everything_else_does() -> None:
    free = {kind for kind in KINDS if not LADDER[kind].counts}
    assert free == {"transient", "infrastructure", "crash", "configuration", "spent"}
    assert {LADDER[kind].first for kind in free} == {"retry"}
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
