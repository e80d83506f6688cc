"""What a run will cost and take: more work, more doubt and fewer workers show; what is unknown is counted."""

import pytest

from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Estimate, Plan
from fleet.core.plans.rungs import SIZES, Ladder, Rung
from fleet.core.policy.forecast import Basis, forecast, planner_call
from fleet.core.state.facts import Assumed, CallTally, Expectation, Forecast, RungTally
from tests.fleet.core.story import plan_of

LADDER = Ladder(
    rungs=(
        Rung(model="small", lands=0.6, dollars=0.01),
        Rung(model="large", effort="low", lands=0.86, dollars=0.13),
        Rung(model="large", effort="high", lands=0.95, dollars=0.29),
    ),
    first=0,
)
CALLS = (
    CallTally(model="planner", first=True, calls=1, seconds=180, dollars=0.5),
    CallTally(model="planner", first=False, calls=1, seconds=30, dollars=0.05),
)
ASSUMED = Assumed(ladders={"coder": LADDER}, planner=CALLS)
LINES = {"small": 10, "medium": 100, "large": 400}


def plan_with(subtasks: int, **fields: object) -> Plan:
    return sized(plan_of(*(f"s{number}" for number in range(subtasks)), **fields))


def sized(plan: Plan) -> Plan:
    estimated = [
        each.model_copy(update={"estimate": Estimate(lines=LINES[SIZES[number % 3]])})
        for number, each in enumerate(plan.subtasks)
    ]
    return plan.model_copy(update={"subtasks": tuple(estimated)})


def chain(subtasks: int) -> Plan:
    return sized(plan_of("s0", *(f"s{number} needs s{number - 1}" for number in range(1, subtasks))))


def forecast_of(plan: Plan, *, workers: int = 16, **basis: object) -> Forecast:
    fields = {"policy": Policy(workers=workers), "assumed": ASSUMED, "gate_s": 0.0, **basis}
    return forecast(plan, Basis(**fields))  # type: ignore[arg-type]


def dollars(made: Forecast) -> Expectation:
    assert made.dollars is not None
    return made.dollars


def seen(attempts: int, *, dollars: float, seconds: float, landed: float = 1.0) -> list[RungTally]:
    """Attempts with the first rung at medium subtasks."""
    return [
        RungTally(
            worker="coder",
            model="small",
            effort=None,
            size="medium",
            landed=round(attempts * landed),
            failed={"check": attempts - round(attempts * landed)},
            priced=attempts,
            dollars=attempts * dollars,
            timed=attempts,
            seconds=attempts * seconds,
        )
    ]


def width(expected: Expectation) -> float:
    return expected.p90 / expected.median


def test_the_same_plan_and_evidence_make_the_same_forecast() -> None:
    assert forecast_of(plan_with(20)) == forecast_of(plan_with(20))


def test_more_subtasks_cost_and_take_more() -> None:
    few, many = forecast_of(plan_with(10)), forecast_of(plan_with(60))
    assert 4 < dollars(many).median / dollars(few).median < 9
    assert many.minutes.median > few.minutes.median
    assert (few.subtasks, few.workers, few.attempts, few.calls) == (10, 16, 0, 0)


def test_more_workers_save_time_and_no_dollars() -> None:
    alone, many = forecast_of(plan_with(30), workers=1), forecast_of(plan_with(30), workers=16)
    assert alone.minutes.median > 5 * many.minutes.median
    assert dollars(alone).median == pytest.approx(dollars(many).median, rel=0.2)


def test_dependencies_take_time_however_many_workers_there_are() -> None:
    assert forecast_of(chain(12)).minutes.median > 1.5 * forecast_of(plan_with(12)).minutes.median


def test_a_slow_gate_takes_time() -> None:
    quick, slow = (forecast_of(chain(8), gate_s=gate_s).minutes.median for gate_s in (0.0, 600.0))
    assert slow > quick + 40


def test_a_gate_that_was_not_run_yet_is_assumed_to_take_some_time() -> None:
    unknown = forecast_of(chain(8), gate_s=None).minutes
    assert forecast_of(chain(8)).minutes.median < unknown.median < forecast_of(chain(8), gate_s=300.0).minutes.median


def test_the_planner_is_a_part_of_the_cost() -> None:
    made = forecast_of(plan_with(20))
    alone = forecast_of(plan_with(20), has_planner=False)
    assert made.planner > 0
    assert alone.planner == 0
    assert dollars(made).median > dollars(alone).median


def test_a_planner_that_made_the_plan_reads_what_landed_and_was_paid_already() -> None:
    given, planned = (
        forecast_of(plan_with(20)),
        forecast_of(plan_with(20), reads_reports=True, dollars=0.5, seconds=180.0),
    )
    assert planned.planner > given.planner + 0.3


def test_without_a_planner_failures_are_left_to_a_person() -> None:
    ladder = Ladder(rungs=(Rung(model="small", lands=0.05, dollars=1.0),), first=0)
    assumed = Assumed(ladders={"coder": ladder}, planner=CALLS)
    tried, untried = (forecast_of(plan_with(20), assumed=assumed, has_planner=has) for has in (True, False))
    assert dollars(tried).median > 2 * dollars(untried).median


def test_more_evidence_makes_a_narrower_range_around_what_was_seen() -> None:
    made = [forecast_of(plan_with(60), tallies=seen(count, dollars=0.05, seconds=60)) for count in (0, 20, 2000)]
    widths = [width(dollars(each)) for each in made]
    assert widths == sorted(widths, reverse=True)
    assert width(made[-1].minutes) < width(made[0].minutes)
    medians = [dollars(each).median for each in made]
    assert medians == sorted(medians, reverse=True), "it landed, and never failed"
    assert made[-1].attempts == 2000


def test_a_small_plan_is_forecast_with_more_doubt_than_a_large_one() -> None:
    one, many = forecast_of(plan_with(1)), forecast_of(plan_with(100))
    assert width(dollars(one)) > width(dollars(many))


def test_what_has_no_price_is_counted_and_still_takes_time() -> None:
    unpriced = Assumed(ladders={"coder": Ladder(rungs=(Rung(model="own"),))})
    made = forecast_of(plan_with(3), assumed=unpriced)
    assert (made.dollars, made.unpriced) == (None, 3)
    assert made.minutes.median > 1
    named = forecast_of(plan_with(3, model="other"))
    assert (named.dollars, named.unpriced) == (None, 3)


def test_areas_are_left_out_and_counted() -> None:
    made = forecast_of(plan_with(2, worker="planner"))
    assert (made.areas, made.subtasks, made.dollars) == (2, 2, None)
    after = plan_of("area", "rest needs area")
    first = after.subtasks[0].model_copy(update={"worker": "planner"})
    assert forecast_of(after.model_copy(update={"subtasks": (first, *after.subtasks[1:])})).areas == 1


def test_programs_cost_nothing_and_take_what_the_plan_says() -> None:
    plan = plan_with(1, worker="deploy")
    long = plan.subtasks[0].model_copy(update={"estimate": Estimate(minutes=50)})
    made = forecast_of(plan.model_copy(update={"subtasks": (long,)}), has_planner=False)
    assert (made.dollars, made.unpriced) == (Expectation(median=0.0, p90=0.0), 0)
    assert 25 < made.minutes.median < 80


def test_failures_climb_without_the_planner_where_a_worker_has_rungs() -> None:
    policy = Policy(rungs={"coder": LADDER})
    climbing, called = forecast_of(plan_with(30), policy=policy), forecast_of(plan_with(30))
    assert climbing.planner < called.planner / 2


def test_calls_of_another_model_say_nothing_of_a_planner() -> None:
    other = CallTally(model="other", first=False, calls=100, seconds=1e6, dollars=1e6)
    mine = CallTally(model="planner", first=False, calls=9, seconds=9 * 60.0, dollars=9 * 0.15)
    assert planner_call(ASSUMED, [other], first=False) == (0.05, 30.0, 0)
    cost, seconds, seen_calls = planner_call(ASSUMED, [mine, other], first=False)
    assert cost == pytest.approx(0.14)
    assert seconds == pytest.approx(57.0)
    assert seen_calls == 9
    unknown = mine.model_copy(update={"dollars": None})
    assert planner_call(ASSUMED, [unknown], first=False)[0] is None


def test_an_empty_plan_and_ten_thousand_subtasks_have_a_forecast() -> None:
    assert forecast_of(Plan()).dollars is None
    assert forecast_of(plan_with(10_000), workers=500).subtasks == 10_000
