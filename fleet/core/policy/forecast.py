"""What a run will cost and take, from the expectations that choose rungs: the median and the 90th percentile.

The plan is played some times, each time with other beliefs about rungs, planner and gate, as far as these are in doubt:
that does not even out over a plan, while the luck of single attempts does. Pure: the same plan and evidence make the
same forecast.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean, median, stdev

from fleet.core.forecast.draws import Draws, width_of
from fleet.core.forecast.play import Network, Played, Rules, Try, play
from fleet.core.plans.dependencies import longest_chains
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.plans.rungs import Ladder, size_of
from fleet.core.policy.ladder import (
    BOUND,
    LONGER,
    TIME_WEIGHT,
    WEIGHT,
    Expected,
    cheapest,
    evidence,
    expectations,
    log_odds,
    odds,
    rung_options,
)
from fleet.core.state.facts import Assumed, CallTally, Expectation, Forecast, RungTally
from fleet.core.state.state import RunState

PLAYED, MOST_PLAYS, FEWEST_PLAYS = 30_000, 200, 40
DOLLARS_DOUBT = 0.4  # of what a rung's attempts cost, as a share of it, while nothing was seen
TIME_DOUBT = 0.8  # of what they take
CALL_DOUBT = 0.6  # of what calls of the planner cost and take
GATE_DOUBT = 0.8  # of what the gate takes, until it was run
RUN_DOUBT = 0.15  # between runs of one repository, however much was seen
AGAIN = 1.2  # how much harder, in log-odds, each failure shows a subtask to be; seen attempts have it in their share
PROGRAM_LANDS = 0.95


@dataclass(frozen=True, slots=True)
class Basis:
    """What a forecast rests on besides the plan."""

    policy: Policy
    assumed: Assumed
    tallies: Sequence[RungTally] = ()
    calls: Sequence[CallTally] = ()
    gate_s: float | None = None
    """What the gate took here; 0: there is none. None: it was not run yet."""
    reads_reports: bool = False
    """Whether the planner made the plan: it reads what its subtasks report."""
    has_planner: bool = True
    dollars: float = 0.0
    """What was spent so far, all of it on the planner."""
    seconds: float = 0.0
    """What was needed so far."""


_Luck = tuple[float, float, float]
"""How far a rung's share, cost and time are from what is expected, in standard deviations."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Subtasks that are expected to do alike: the rungs that their attempts take, one after the other."""

    worker: str
    expected: Sequence[Expected]
    path: Sequence[int]
    climbs: bool


def run_forecast(state: RunState, now: float) -> Forecast | None:
    """Of a run of which only the plan is done; None if it has no assumptions."""
    if state.assumed is None:
        return None
    basis = Basis(
        policy=state.policy,
        assumed=state.assumed,
        tallies=state.past,
        calls=(*state.past_calls, *state.calls),
        gate_s=sum(state.gate.values()) if state.base_checked or not state.policy.check_base else None,
        reads_reports=not state.given,
        has_planner=state.has_planner,
        dollars=state.spent.priced_dollars,
        seconds=state.seconds(now),
    )
    return forecast(state.plan, basis)


def forecast(plan: Plan, basis: Basis) -> Forecast:
    subtasks = [subtask for subtask in plan.subtasks if subtask.worker != PLANNER]
    ladders = {**basis.assumed.ladders, **basis.policy.rungs}
    kinds, kind_of = _kinds(subtasks, ladders, basis)
    unpriced = sum(any(each.dollars is None for each in kinds[kind_of[subtask.id]].expected) for subtask in subtasks)
    priced = unpriced < len(subtasks)
    network, draws = _network(subtasks, kind_of), Draws()
    plays = max(FEWEST_PLAYS, min(MOST_PLAYS, PLAYED // max(1, len(subtasks))))
    played = [_play(network, kinds, basis, draws) for _ in range(plays)]
    used = {subtask.worker for subtask in subtasks} & ladders.keys()
    planner = [basis.dollars + each.planner for each in played]
    dollars = [called + each.workers for called, each in zip(planner, played, strict=True)]
    expected = _expectation(dollars) if priced else None
    return Forecast(
        dollars=expected,
        planner=_short(expected.median * fmean(planner) / fmean(dollars)) if expected and any(dollars) else 0.0,
        minutes=_expectation([(basis.seconds + each.seconds) / 60 for each in played]),
        subtasks=len(plan.subtasks),
        workers=basis.policy.workers,
        attempts=sum(_seen(basis.tallies, worker, ladders[worker]) for worker in used),
        calls=sum(tally.calls for tally in basis.calls if not tally.first),
        unpriced=unpriced,
        areas=len(plan.subtasks) - len(subtasks),
    )


def _seen(tallies: Iterable[RungTally], worker: str, ladder: Ladder) -> int:
    rungs = {(rung.model, rung.effort) for rung in ladder.rungs}
    return sum(each.tried for key, each in evidence(tallies, worker).items() if key[:2] in rungs)


def _expectation(amounts: Sequence[float]) -> Expectation:
    """Of a log-normal amount; where it may be nothing, by what was played."""
    if min(amounts) > 0:
        logs = [log(amount) for amount in amounts]
        middle = fmean(logs)
        return Expectation(median=_short(exp(middle)), p90=_short(exp(middle + BOUND * stdev(logs))))
    ranked = sorted(amounts)
    return Expectation(median=_short(median(ranked)), p90=_short(ranked[len(ranked) * 9 // 10]))


def _short(number: float) -> float:
    return float(f"{number:.4g}")


# ---- the plan -------------------------------------------------------------------------------------------------------


def _network(subtasks: Sequence[Subtask], kind_of: Mapping[str, int]) -> Network:
    """The subtasks by number, those with the longest chain of dependants first, as the scheduler takes them."""
    ids = {subtask.id for subtask in subtasks}
    needs = {subtask.id: [id_ for id_ in subtask.depends_on if id_ in ids] for subtask in subtasks}
    followers: dict[str, list[str]] = {id_: [] for id_ in needs}
    for id_, needed in needs.items():
        for each in needed:
            followers[each].append(id_)
    chains = longest_chains(followers)
    numbers = {id_: number for number, id_ in enumerate(sorted(needs, key=lambda id_: -chains[id_]))}
    return Network(
        kinds=tuple(kind_of[id_] for id_ in numbers),
        needs=tuple(len(needs[id_]) for id_ in numbers),
        followers=tuple(tuple(numbers[follower] for follower in followers[id_]) for id_ in numbers),
    )


def _kinds(
    subtasks: Sequence[Subtask], ladders: Mapping[str, Ladder], basis: Basis
) -> tuple[list[_Kind], dict[str, int]]:
    """The kinds of the subtasks of a plan, and which one each is of."""
    kinds: list[_Kind] = []
    numbers: dict[object, int] = {}
    kind_of = {}
    for subtask in subtasks:
        size, ladder = size_of(subtask.estimate), ladders.get(subtask.worker)
        minutes = subtask.estimate.minutes if ladder is None else None
        key = (subtask.worker, size, subtask.model, subtask.effort, minutes)
        if key not in numbers:
            numbers[key] = len(kinds)
            kinds.append(_program(subtask, basis) if ladder is None else _agent(subtask, ladder, basis))
        kind_of[subtask.id] = numbers[key]
    return kinds, kind_of


def _program(subtask: Subtask, basis: Basis) -> _Kind:
    """A worker without a model costs nothing, and takes what the plan says."""
    minutes = subtask.estimate.minutes
    seconds = minutes * 60 if minutes else basis.assumed.program_s * LONGER[size_of(subtask.estimate)]
    expected = Expected(PROGRAM_LANDS, PROGRAM_LANDS, PROGRAM_LANDS, 0.0, 0, seconds, 0, 0)
    return _Kind(subtask.worker, [expected], [0] * basis.policy.max_attempts, climbs=False)


def _agent(subtask: Subtask, ladder: Ladder, basis: Basis) -> _Kind:
    """A model or an effort that the plan names has no expectation: it is taken for the first rung, without a price."""
    attempts, size = basis.policy.max_attempts, size_of(subtask.estimate)
    seen = evidence(basis.tallies, subtask.worker)
    expected = expectations(ladder, seen, size)
    if subtask.model is not None or subtask.effort is not None:
        unknown = replace(expected[0], dollars=None, priced=0)
        return _Kind(subtask.worker, [unknown], [0] * attempts, climbs=False)
    first = ladder.first if ladder.first is not None else cheapest(rung_options(ladder, seen, size, attempts=attempts))
    path = [min((first or 0) + step, len(expected) - 1) for step in range(attempts)]
    return _Kind(subtask.worker, expected, path, climbs=subtask.worker in basis.policy.rungs)


# ---- one play -------------------------------------------------------------------------------------------------------


def _play(network: Network, kinds: Sequence[_Kind], basis: Basis, draws: Draws) -> Played:
    """With one of the beliefs that the evidence allows. What is believed of a rung holds for all sizes."""
    dollars, seconds = draws.factor(width_of(RUN_DOUBT)), draws.factor(width_of(RUN_DOUBT))
    luck: dict[tuple[str, int], _Luck] = {}
    tries: dict[int, list[Try]] = {}
    for number, kind in enumerate(kinds):
        tries[number] = []
        for failed, rung in enumerate(kind.path):
            drawn = luck.setdefault((kind.worker, rung), (draws.normal(), draws.normal(), draws.normal()))
            amounts = _believed(kind.expected[rung], failed, drawn)
            climbs = kind.climbs and rung + 1 < len(kind.expected)
            tries[number].append(Try(amounts[0], amounts[1] * dollars, amounts[2] * seconds, climbs))
    return play(network, tries, _rules(basis, draws, dollars, seconds), draws)


def _believed(expected: Expected, failed: int, drawn: _Luck) -> tuple[float, float, float]:
    """The share that lands after so many failures, and what an attempt costs and takes."""
    seen = expected.tried / WEIGHT
    spread = 1.0 / sqrt((WEIGHT + expected.tried) * expected.lands * (1.0 - expected.lands))
    lands = odds(log_odds(expected.lands) + drawn[0] * spread - failed * AGAIN / (1.0 + seen))
    cost = (expected.dollars or 0.0) * _factor(drawn[1], DOLLARS_DOUBT, expected.priced / WEIGHT)
    return lands, cost, expected.seconds * _factor(drawn[2], TIME_DOUBT, expected.timed / TIME_WEIGHT)


def _factor(drawn: float, doubt: float, seen: float) -> float:
    """How far an expectation is off in this play: the less, the more was seen."""
    width = width_of(doubt / (1.0 + seen) ** 0.5)
    return exp(width * drawn - width * width / 2)


def _rules(basis: Basis, draws: Draws, dollars: float, seconds: float) -> Rules:
    policy = basis.policy
    call_dollars, call_s, seen = planner_call(basis.assumed, basis.calls, first=False)
    gate_s = basis.gate_s if basis.gate_s is not None else basis.assumed.gate_s * draws.factor(width_of(GATE_DOUBT))
    return Rules(
        workers=policy.workers,
        slots=policy.slots,
        gate_s=gate_s,
        quick_s=policy.every_commit_within_s,
        has_planner=basis.has_planner,
        reports=basis.reads_reports,
        settle_s=policy.settle_s,
        call_s=call_s * seconds * _factor(draws.normal(), CALL_DOUBT, seen),
        call_dollars=(call_dollars or 0.0) * dollars * _factor(draws.normal(), CALL_DOUBT, seen),
    )


def planner_call(assumed: Assumed, calls: Iterable[CallTally], *, first: bool) -> tuple[float | None, float, int]:
    """What a call of the planner is expected to cost and take, and how many were seen."""
    prior = next((tally for tally in assumed.planner if tally.first == first), None)
    if prior is None:
        return None, 0.0, 0
    seen = [tally for tally in calls if tally.first == first and tally.model == prior.model]
    count = sum(tally.calls for tally in seen)
    seconds = (prior.seconds + sum(tally.seconds for tally in seen)) / (1 + count)
    if prior.dollars is None or any(tally.dollars is None for tally in seen):
        return None, seconds, count
    return (prior.dollars + sum(tally.dollars or 0.0 for tally in seen)) / (1 + count), seconds, count
