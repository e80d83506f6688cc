"""What a plan says of its own size."""

import pytest

from fleet.core.plans.plan import Estimate, Plan, plan_estimate
from tests.fleet.core.story import plan_of


def sized(*lines: str, **minutes: float) -> Plan:
    plan = plan_of(*lines)
    subtasks = [
        spec.model_copy(update={"estimate": Estimate(minutes=minutes.get(spec.id), dollars=minutes.get(spec.id))})
        for spec in plan.subtasks
    ]
    return plan.model_copy(update={"subtasks": tuple(subtasks)})


def test_minutes_and_dollars_are_summed_over_what_was_estimated() -> None:
    sums = plan_estimate(sized("a", "b needs a", "c", a=10, b=5))
    assert (sums.minutes, sums.timed, sums.dollars, sums.priced) == (15, 2, 15, 2)


@pytest.mark.parametrize(("a", "b", "c", "longest"), [(10, 5, 4, 15), (1, 1, 9, 9)])
def test_the_longest_chain_is_what_any_number_of_workers_takes(a: float, b: float, c: float, longest: float) -> None:
    assert plan_estimate(sized("a", "b needs a", "c", a=a, b=b, c=c)).longest == longest


def test_risks_are_counted_from_low_to_high() -> None:
    plan = plan_of("a", "b", "c")
    risky = [
        spec.model_copy(update={"risk": risk})
        for spec, risk in zip(plan.subtasks, ("high", "low", "high"), strict=True)
    ]
    assert list(plan_estimate(Plan(subtasks=tuple(risky))).risks.items()) == [("low", 1), ("high", 2)]


def test_an_empty_plan_takes_no_time() -> None:
    assert plan_estimate(Plan()).longest == 0
