"""What landed subtasks cost with a ladder by evidence, compared with always the dearest and always the cheapest rung.

Runs over a pretended population (`bench/population.py`). What a run leaves to a person is then done on the dearest
rung, so that all strategies land as much.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from anyio import to_thread

from bench.population import FACTOR, LANDS, PLANNER, Population
from bench.side_by_side import SMALL, Extent
from fleet.core.state import facts as f
from scripts.frame import Figure

SUBTASKS = 500
LEAST = 0.1  # what a person makes of the hardest subtasks
DEAREST, CHEAPEST = 0.65, 0.95


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    landed: int
    dollars: float
    left: float
    """What it cost to land the rest on the dearest rung."""
    firsts: Mapping[str, int]
    """How many subtasks began on each rung."""


async def ladder_figures(extent: Extent) -> list[Figure]:
    return await to_thread.run_sync(_figures, 3 if extent.simulated_hours > SMALL.simulated_hours else 1)


def _figures(runs: int) -> list[Figure]:
    three, two = tuple(LANDS), tuple(LANDS)[1:]
    figures = []
    for label, rungs, dearest, cheapest in (("three rungs", three, DEAREST, CHEAPEST), ("two rungs", two, None, None)):
        ladder, dear, cheap = (sum_of(each, runs) for each in (rungs, rungs[-1:], rungs[:1]))
        for name, other, wanted in (("dearest", dear, dearest), ("cheapest", cheap, cheapest)):
            share = (ladder.dollars + ladder.left) / (other.dollars + other.left)
            note = f"{ladder.landed} and {other.landed} of {runs * SUBTASKS} without a person"
            figures.append(Figure(f"dollars, ladder of always the {name}", label, share, wanted=wanted, note=note))
    return figures


def sum_of(rungs: tuple[str, ...], runs: int, subtasks: int = SUBTASKS) -> Result:
    """The results of some runs together."""
    results = [result_of(Population(rungs, seed=seed, subtasks=subtasks)) for seed in range(runs)]
    firsts: Counter[str] = Counter()
    for each in results:
        firsts.update(each.firsts)
    landed, dollars, left = (sum(getattr(each, name) for each in results) for name in ("landed", "dollars", "left"))
    return Result(landed, dollars, left, firsts)


def result_of(population: Population) -> Result:
    state = population.play()
    started = (fact for fact in population.facts if isinstance(fact, f.AttemptStarted) and fact.number == 1)
    firsts = Counter(f"{fact.model} {fact.effort}" for fact in started)
    return Result(state.commits, state.spent.priced_dollars, rest_of(population), firsts)


def rest_of(population: Population) -> float:
    """What landing the rest costs on the dearest rung, each attempt after a call of the planner."""
    dollars, rung = 0.0, list(LANDS)[-1]
    for number in range(population.subtasks):
        if population.state.subtasks[f"s{number}"].landed is None:
            lands = population.share(number, rung)
            cost = population.truth.costs[rung] * FACTOR[population.sizes[number]]
            dollars += (cost + PLANNER) / max(lands, LEAST)
    return dollars
