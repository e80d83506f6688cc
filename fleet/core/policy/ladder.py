"""The rung of each attempt: the first one by dollars per landed subtask, the next one after a failure it may mend.

Dollars per landed subtask are expected from a rung's assumptions and from what earlier attempts with it cost and
landed, in this run and in earlier runs of the repository. Assumptions weigh as much as `WEIGHT` attempts. Pure: the
same evidence makes the same choice, and the choice is recorded with its reasons.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import exp, log, sqrt

from fleet.core.plans.plan import Effort, Subtask
from fleet.core.plans.rungs import SIZES, Ladder, Rung, Size, size_of
from fleet.core.policy.budget import run_budgets
from fleet.core.state.facts import FailureKind, RungChoice, RungOption, RungTally
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import Attempt, SubtaskState

WEIGHT = 8.0  # attempts that an assumption weighs as much as
TIME_WEIGHT = 1.0  # the same for the time of an attempt: services differ far more in speed than in price
EXPLORED = 0.1  # the share of subtasks that may begin on a rung of which little is known
WIDEST = 2.5  # log-odds: where nearly all or nearly none landed, the formula says nothing
BOUND = 1.2816  # standard deviations: four of five cases are within
HARDER: Mapping[Size, float] = {"small": -0.7, "medium": 0.0, "large": 1.0}
"""How much harder a subtask is assumed to be than a medium one, in log-odds of landing."""
LONGER: Mapping[Size, float] = {"small": 0.5, "medium": 1.0, "large": 2.5}
"""How much more an attempt at it is assumed to cost."""
ABILITY: frozenset[FailureKind] = frozenset({"check", "empty", "protocol", "too_complex", "refusal", "budget"})
"""Failures that a more able model, or more effort, may avoid. Wrong plans, broken machines and merges are not."""
JUDGED = ABILITY | {"bounds", "integration"}
"""Failures that say something about the rung; a wrong plan or a conflict does not."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What attempts with one rung at subtasks of one size led to."""

    tried: int = 0
    landed: int = 0
    priced: int = 0
    dollars: float = 0.0
    timed: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(
            self.tried + other.tried,
            self.landed + other.landed,
            self.priced + other.priced,
            self.dollars + other.dollars,
            self.timed + other.timed,
            self.seconds + other.seconds,
        )


Seen = Mapping[tuple[str, Effort | None, Size], Evidence]
"""The evidence about one worker, by model, effort and size."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The model and the effort of an attempt, and why, if a ladder decided."""

    model: str | None
    effort: Effort | None
    choice: RungChoice | None = None


def evidence(tallies: Iterable[RungTally], worker: str) -> Seen:
    seen: dict[tuple[str, Effort | None, Size], Evidence] = {}
    for tally in tallies:
        if tally.worker == worker:
            tried = tally.landed + sum(count for kind, count in tally.failed.items() if kind in JUDGED)
            key = (tally.model, tally.effort, tally.size)
            seen[key] = seen.get(key, Evidence()) + Evidence(
                tried, tally.landed, tally.priced, tally.dollars, tally.timed, tally.seconds
            )
    return seen


# ---- one attempt ----------------------------------------------------------------------------------------------------


def take_rung(state: RunState, spec: Subtask, subtask: SubtaskState) -> Taken:
    """The rung of the next attempt at a subtask. A model or an effort that the plan names is taken as it is."""
    ladder = state.policy.rungs.get(spec.worker)
    if ladder is None or spec.model is not None or spec.effort is not None:
        return Taken(spec.model, spec.effort)
    last = _last_choice(subtask, spec.worker)
    if last is not None:
        attempt, before = last
        index = min(before.rung, len(ladder.rungs) - 1)
        climbs = can_climb(ladder, attempt)
        choice = RungChoice(rung=index + climbs, why="climbed" if climbs else "again")
    elif ladder.first is not None:
        choice = RungChoice(rung=ladder.first, why="named")
    else:
        choice = _first_rung(state, spec, ladder)
    rung = ladder.rungs[choice.rung]
    return Taken(rung.model, rung.effort, choice)


def climbs_after(state: RunState, spec: Subtask, subtask: SubtaskState) -> bool:
    """Whether the next rung takes a subtask whose last attempt failed."""
    ladder, last = state.policy.rungs.get(spec.worker), subtask.last
    if ladder is None or last is None or spec.model is not None or spec.effort is not None:
        return False
    return last.worker == spec.worker and last.choice is not None and can_climb(ladder, last)


def can_climb(ladder: Ladder, attempt: Attempt) -> bool:
    """Whether the attempt failed in a way that the next rung may mend, and there is one."""
    failed = attempt.worked and attempt.failure is not None and attempt.failure.kind in ABILITY
    return failed and attempt.choice is not None and attempt.choice.rung + 1 < len(ladder.rungs)


def _last_choice(subtask: SubtaskState, worker: str) -> tuple[Attempt, RungChoice] | None:
    for attempt in reversed(subtask.attempts):
        if attempt.worker == worker and attempt.choice is not None:
            return attempt, attempt.choice
    return None


def _first_rung(state: RunState, spec: Subtask, ladder: Ladder) -> RungChoice:
    tallies = (*state.past, *state.tallies.values())
    options = rung_options(
        ladder, evidence(tallies, spec.worker), size_of(spec.estimate), attempts=state.policy.max_attempts
    )
    best = cheapest(options)
    if best is None:
        return RungChoice(rung=0, why="unpriced", options=options)
    other = None if spec.risk == "high" else explored(options, best, key=f"{state.run}/{spec.id}")
    if other is not None and _is_affordable(state, options[best], options[other]):
        return RungChoice(rung=other, why="explored", options=options)
    return RungChoice(rung=best, why="evidence", options=options)


def _is_affordable(state: RunState, best: RungOption, other: RungOption) -> bool:
    """Whether no budget suffers: with what all open subtasks are expected to cost, this one may cost what it may."""
    if state.low or best.per_landed is None or other.most_per_landed is None:
        return False
    budget = next((each for each in run_budgets(state, state.last_at) if each.unit == "dollars"), None)
    if budget is None:
        return True
    needed = state.subtasks.open.bit_count() * best.per_landed
    return needed + other.most_per_landed <= budget.remaining - (state.held.dollars or 0.0)


# ---- expectations ---------------------------------------------------------------------------------------------------


def cheapest(options: Sequence[RungOption]) -> int | None:
    """The rung with the fewest dollars per landed subtask, the lower one of equals; None if a price is unknown."""
    costs = [option.per_landed for option in options if option.per_landed is not None]
    return costs.index(min(costs)) if len(costs) == len(options) else None


def explored(options: Sequence[RungOption], best: int, *, key: str) -> int | None:
    """A rung to find out more about: for a few subtasks, the least tried of those that may well be cheaper."""
    if int.from_bytes(sha256(f"explore {key}".encode()).digest()[:4]) >= EXPLORED * 2**32:
        return None
    limit = options[best].per_landed
    maybe = [
        (option.tried, index)
        for index, option in enumerate(options)
        if index != best and limit is not None and option.least_per_landed is not None
        if option.least_per_landed < limit
    ]
    return min(maybe)[1] if maybe else None


def rung_options(ladder: Ladder, seen: Seen, size: Size, *, attempts: int) -> tuple[RungOption, ...]:
    """Each rung as the first one for a subtask of this size, of which at most so many attempts are made."""
    expected = expectations(ladder, seen, size)
    costs, mean = [each.dollars for each in expected], [each.lands for each in expected]
    options = []
    for index, (rung, each) in enumerate(zip(ladder.rungs, expected, strict=True)):
        low, high = [*mean], [*mean]
        low[index], high[index] = each.low, each.high
        own = seen.get((rung.model, rung.effort, size), Evidence())
        options.append(
            RungOption(
                model=rung.model,
                effort=rung.effort,
                tried=own.tried,
                landed=own.landed,
                lands=_short(each.lands),
                low=_short(each.low),
                high=_short(each.high),
                dollars=None if each.dollars is None else _short(each.dollars),
                per_landed=_climb(costs, mean, index, attempts),
                least_per_landed=_climb(costs, high, index, attempts),
                most_per_landed=_climb(costs, low, index, attempts),
            )
        )
    return tuple(options)


def _climb(costs: Sequence[float | None], lands: Sequence[float], first: int, attempts: int) -> float | None:
    """Dollars per landed subtask if attempts begin on a rung, each failure leads to the next and the last one stays."""
    reached, dollars = 1.0, 0.0
    for step in range(attempts):
        at = min(first + step, len(costs) - 1)
        cost = costs[at]
        if cost is None:
            return None
        dollars += reached * cost
        reached *= 1.0 - lands[at]
    return _short(dollars / (1.0 - reached))


@dataclass(frozen=True, slots=True)
class Expected:
    """What one attempt with a rung is expected to do. `low` and `high` bound its share in four of five cases."""

    lands: float
    low: float
    high: float
    dollars: float | None
    priced: int
    """Attempts of any size whose price is known."""
    seconds: float
    timed: int
    """Attempts of any size whose time is known."""
    tried: int
    """Attempts of any size."""


def expectations(ladder: Ladder, seen: Seen, size: Size) -> list[Expected]:
    return [_expected(rung, seen, size) for rung in ladder.rungs]


def _expected(rung: Rung, seen: Seen, size: Size) -> Expected:
    """The assumption, corrected by what was seen at other sizes, then by what was seen at this one."""
    own = seen.get((rung.model, rung.effort, size), Evidence())
    others = [(other, seen.get((rung.model, rung.effort, other), Evidence())) for other in SIZES if other != size]
    assumed = _assumed(rung, size)
    tried = sum(each.tried for _, each in others)
    if tried:
        mean = sum(each.tried * _assumed(rung, other) for other, each in others) / tried
        landed = sum(each.landed for _, each in others)
        assumed = odds(log_odds(assumed) + log_odds((landed + WEIGHT * mean) / (tried + WEIGHT)) - log_odds(mean))
    weight = WEIGHT + own.tried
    lands = (WEIGHT * assumed + own.landed) / weight
    spread = min(BOUND / sqrt(weight * lands * (1.0 - lands)), WIDEST)
    low, high = odds(log_odds(lands) - spread), odds(log_odds(lands) + spread)
    seen_at = [(size, own), *others]
    priced = [(at, each.priced, each.dollars) for at, each in seen_at]
    timed = [(at, each.timed, each.seconds) for at, each in seen_at]
    return Expected(
        lands,
        low,
        high,
        dollars=None if rung.dollars is None else _amount(rung.dollars, priced, WEIGHT),
        priced=sum(count for _, count, _ in priced),
        seconds=_amount(rung.seconds, timed, TIME_WEIGHT),
        timed=sum(count for _, count, _ in timed),
        tried=tried + own.tried,
    )


def _amount(usual: float, seen: Sequence[tuple[Size, int, float]], weight: float) -> float:
    """What an attempt costs or takes: the assumption, corrected alike. The first of `seen` is its own size."""
    (size, count, total), *others = seen
    assumed = usual * LONGER[size]
    if counted := sum(each for _, each, _ in others):
        expected = usual * sum(each * LONGER[other] for other, each, _ in others) / counted
        needed = sum(amount for _, _, amount in others)
        assumed *= (needed + weight * expected) / ((counted + weight) * expected) if expected else 1.0
    return (weight * assumed + total) / (weight + count)


def _assumed(rung: Rung, size: Size) -> float:
    return odds(log_odds(rung.lands) - HARDER[size])


def log_odds(share: float) -> float:
    bounded = min(max(share, 1e-6), 1.0 - 1e-6)
    return log(bounded / (1.0 - bounded))


def odds(log_odds_: float) -> float:
    return 1.0 / (1.0 + exp(-log_odds_))


def _short(number: float) -> float:
    """Few enough digits for a journal."""
    return float(f"{number:.6g}")
