"""What a plan's workers will cost: calibrated by pretended runs, and unknown where nothing is known."""

import random
from math import log, sqrt

import pytest

from fleet.core.plans.plan import Estimate, Plan
from fleet.core.plans.rungs import SIZES, Ladder, Rung, Size
from fleet.core.policy.forecast import SPREAD, forecast
from fleet.core.policy.ladder import LONGER, WEIGHT, Evidence, expectations
from fleet.core.state.facts import RungTally
from tests.fleet.core.story import plan_of

LADDER = Ladder(
    rungs=(
        Rung(model="small", lands=0.6, dollars=0.01),
        Rung(model="large", effort="low", lands=0.86, dollars=0.13),
        Rung(model="large", effort="high", lands=0.95, dollars=0.29),
    ),
    first=0,
)
LINES = {"small": 10, "medium": 100, "large": 400}


def plan_with(subtasks: int, **fields: object) -> Plan:
    plan = plan_of(*(f"s{number}" for number in range(subtasks)), **fields)
    sized = [
        each.model_copy(update={"estimate": Estimate(lines=LINES[SIZES[number % 3]])})
        for number, each in enumerate(plan.subtasks)
    ]
    return plan.model_copy(update={"subtasks": tuple(sized)})


def truth(chance: random.Random) -> tuple[list[float], list[float]]:
    """How well rungs really do in one repository: as likely as is assumed."""
    lands = [chance.betavariate(WEIGHT * rung.lands, WEIGHT * (1 - rung.lands)) for rung in LADDER.rungs]
    return lands, [chance.lognormvariate(-0.08, 0.4) * (rung.dollars or 0) for rung in LADDER.rungs]


def play(chance: random.Random, subtasks: int, lands: list[float], costs: list[float]) -> tuple[float, list[RungTally]]:
    """The dollars of one run, and what it saw."""
    sigma, dollars = sqrt(log(1 + SPREAD**2)), 0.0
    seen: dict[tuple[int, Size], Evidence] = {}
    for number in range(subtasks):
        size = SIZES[number % 3]
        shares = [_with_size(share, size) for share in lands]
        for step in range(4):
            rung = min(step, 2)
            paid = costs[rung] * LONGER[size] * chance.lognormvariate(-(sigma**2) / 2, sigma)
            landed = chance.random() < shares[rung]
            dollars += paid
            seen[rung, size] = seen.get((rung, size), Evidence()) + Evidence(1, int(landed), 1, paid)
            if landed:
                break
    return dollars, [
        RungTally(
            worker="coder",
            model=LADDER.rungs[rung].model,
            effort=LADDER.rungs[rung].effort,
            size=size,
            landed=each.landed,
            failed={"check": each.tried - each.landed},
            priced=each.priced,
            dollars=each.dollars,
        )
        for (rung, size), each in seen.items()
    ]


def _with_size(share: float, size: Size) -> float:
    rung = Ladder(rungs=(Rung(model="any", lands=min(max(share, 0.001), 0.999)),))
    return expectations(rung, {}, size)[0].lands


@pytest.mark.parametrize("earlier", [0, 60])
def test_nine_of_ten_runs_cost_at_most_what_is_forecast(earlier: int) -> None:
    """Of 200 pretended runs, 85 to 95 % do, with and without earlier ones; and half of them at most the median."""
    chance, within, below = random.Random(7), 0, 0  # noqa: S311 - a pretended world
    for _ in range(200):
        lands, costs = truth(chance)
        tallies = play(chance, earlier, lands, costs)[1] if earlier else []
        told = forecast(plan_with(60), {"coder": LADDER}, tallies, attempts=4)
        paid, _ = play(chance, 60, lands, costs)
        within += paid <= told.ninth
        below += paid <= told.median
    assert 0.85 <= within / 200 <= 0.95
    assert 0.35 <= below / 200 <= 0.65


def test_more_evidence_makes_a_narrower_range() -> None:
    chance = random.Random(1)  # noqa: S311 - a pretended world
    costs = [rung.dollars or 0.0 for rung in LADDER.rungs]
    widths = []
    for earlier in (0, 60, 600):
        tallies = play(chance, earlier, [0.6, 0.86, 0.95], costs)[1]
        told = forecast(plan_with(60), {"coder": LADDER}, tallies, attempts=4)
        widths.append(told.ninth / told.median)
    assert widths == sorted(widths, reverse=True)


def test_a_small_plan_is_forecast_with_more_doubt_than_a_large_one() -> None:
    one, many = (forecast(plan_with(count), {"coder": LADDER}, [], attempts=4) for count in (1, 100))
    assert one.ninth / one.median > many.ninth / many.median
    assert one.seen == many.seen == 0


def test_what_has_no_expectation_is_left_out_and_counted() -> None:
    unpriced = Ladder(rungs=(Rung(model="own"),))
    assert forecast(plan_with(3), {"coder": unpriced}, [], attempts=4).unknown == 3
    assert forecast(plan_with(3), {}, [], attempts=4).unknown == 3
    assert forecast(plan_with(3, model="other"), {"coder": LADDER}, [], attempts=4).median == 0
    assert forecast(plan_with(3, worker="planner"), {"coder": LADDER}, [], attempts=4).unknown == 0
