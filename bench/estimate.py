"""How many pretended runs stay within the 90th percentile of their forecast, in dollars and in minutes.

Each run is one of a repository of its own (`bench/population.py`), where nothing is as assumed: how often each rung
lands, what attempts cost and take, how subtasks differ in difficulty, the planner, the gate. The number of subtasks and
workers, how the subtasks depend on each other, and who made the plan differ as well. The forecast is the one that the
product records before the first attempt.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

from anyio import to_thread

from agents.rung_priors import assumed_calls
from bench.population import ATTEMPT_S, COSTS, LANDS, PLANNER, PLANNER_S, PLANS, Population, Truth
from bench.side_by_side import SMALL, Extent
from fleet.app.evidence import PastRun, evidence_of, past_run
from fleet.core.plans.rungs import Size
from fleet.core.state.facts import Assumed
from scripts.frame import Figure

RUNS = 200
EARLIER = 3  # runs of the same repository
LEAST, MOST = 0.85, 0.95
RUNGS: Sequence[tuple[str, ...]] = (tuple(LANDS), tuple(LANDS)[1:], tuple(LANDS)[:1], tuple(LANDS)[2:])
ASSUMED = Assumed(planner=assumed_calls(PLANS, {}))


@dataclass(frozen=True, slots=True)
class World:
    """How repositories differ from what is assumed of them, on average: 1 and 0 mean not at all."""

    dollars: float = 1.0
    seconds: float = 1.0
    lands: float = 0.0
    """In log-odds."""


AS_ASSUMED = World()
DEARER = World(dollars=1.7, seconds=0.5, lands=-0.5)
"""Rungs land less often, attempts and calls cost more and take less time."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a run came to, as a share of what was forecast."""

    dollars: float
    """Of the 90th percentile."""
    minutes: float
    median_dollars: float
    median_minutes: float


async def estimate_figures(extent: Extent) -> list[Figure]:
    return await to_thread.run_sync(_figures, RUNS if extent.simulated_hours > SMALL.simulated_hours else RUNS // 4)


def _figures(runs: int) -> list[Figure]:
    figures = []
    for label, world, earlier in (
        ("nothing seen", AS_ASSUMED, 0),
        (f"{EARLIER} runs before", AS_ASSUMED, EARLIER),
        ("dearer, 3 before", DEARER, EARLIER),
    ):
        compared = [compare(seed, world, earlier) for seed in range(runs)]
        for unit in ("dollars", "minutes"):
            within = sum(getattr(each, unit) <= 1 for each in compared) / runs
            below = sum(getattr(each, f"median_{unit}") <= 1 for each in compared) / runs
            note = f"{runs} runs; {below:.0%} within the median"
            name = f"estimate: runs within its 90th percentile, {unit}"
            figures.append(Figure(name, label, within, wanted=LEAST, at_least=True, most=MOST, note=note))
    return figures


def compare(seed: int, world: World, earlier: int) -> Compared:
    """A run of one repository, after some earlier ones."""
    chance = random.Random(f"repository {seed}")  # noqa: S311 - a simulation
    truth, rungs, before = draw_truth(chance, world), chance.choice(RUNGS), list[PastRun]()
    for number in range(earlier):
        past = _run(chance, truth, rungs, before, seed=1_000 * (number + 1) + seed)
        before.append(past_run(past.state, len(past.facts)))
    run = _run(chance, truth, rungs, before, seed=seed)
    made = run.state.forecast
    assert made is not None
    dollars, minutes = made.forecast.dollars, made.forecast.minutes
    assert dollars is not None
    spent, took = run.state.spent.priced_dollars, run.now / 60
    return Compared(spent / dollars.p90, took / minutes.p90, spent / dollars.median, took / minutes.median)


def _run(
    chance: random.Random, truth: Truth, rungs: tuple[str, ...], before: Sequence[PastRun], *, seed: int
) -> Population:
    """One run, which is a little different from others of its repository."""
    dollars, seconds = _factor(chance, 0.15), _factor(chance, 0.15)
    mine = replace(
        truth,
        costs={rung: cost * dollars for rung, cost in truth.costs.items()},
        attempt_s={size: time * seconds for size, time in truth.attempt_s.items()},
    )
    population = Population(
        rungs,
        seed=seed,
        subtasks=chance.randint(5, 80),
        workers=chance.choice((4, 8, 16, 32)),
        truth=mine,
        evidence=evidence_of(before, ASSUMED).model_copy(update={"at": 0.0}),
        is_planned=chance.random() < 0.5,
        chained=chance.choice((0.0, 0.3, 0.8)),
    )
    population.play()
    return population


def draw_truth(chance: random.Random, world: World) -> Truth:
    """What is true of one repository: as far from what is assumed as repositories differ."""
    seconds = world.seconds * _factor(chance, 0.6)
    gate = 60.0 * _factor(chance, 0.8)
    return Truth(
        lands={rung: _shifted(shares, world.lands + chance.gauss(0.0, 0.5)) for rung, shares in LANDS.items()},
        costs={rung: cost * world.dollars * _factor(chance, 0.35) for rung, cost in COSTS.items()},
        attempt_s={size: time * seconds for size, time in ATTEMPT_S.items()},
        hardness=chance.uniform(0.5, 2.4),
        planner=PLANNER * world.dollars * _factor(chance, 0.5),
        planner_s=PLANNER_S * world.seconds * _factor(chance, 0.5),
        gate_s=gate if chance.random() < 0.8 else 0.0,
        spread=chance.uniform(0.3, 0.8),
        time_spread=chance.uniform(0.3, 0.7),
        call_spread=0.4,
    )


def _shifted(shares: Mapping[Size, float], by: float) -> Mapping[Size, float]:
    return {size: 1 / (1 + exp(-log(share / (1 - share)) - by)) for size, share in shares.items()}


def _factor(chance: random.Random, spread: float) -> float:
    return chance.lognormvariate(-spread * spread / 2, spread)
