"""The cost of a run by role, model and subtask, and estimates for open subtasks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from statistics import median

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.facts.facts import Spread, SubtaskEstimate
from fleet.core.plans.limits import ENOUGH, Size, size_of
from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.state.state import RunState
from fleet.core.state.status import progress
from fleet.core.state.subtasks import Attempt
from fleet.read.question_view import needed
from fleet.read.run_view import RemainingView


@dataclass(frozen=True, slots=True)
class AttemptCosts:
    """The cost of the attempts of a run."""

    failures: int
    """Number of failed attempts."""
    failed: Spend
    """The cost of failed attempts."""
    models: Mapping[str, Spend]
    """By model, or by worker if it does not name a model."""
    costliest: tuple[SubtaskId, ...]
    """The most expensive subtasks."""


def attempt_costs(state: RunState, most: int) -> AttemptCosts:
    """The cost of the attempts of a run. `most` limits the list of expensive subtasks."""
    failures, failed, models, dollars = 0, Spend(), dict[str, Spend](), dict[SubtaskId, float]()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            if attempt.failure is not None:
                failures, failed = failures + 1, failed + attempt.spend
            if attempt.spend.calls:
                name = attempt.model or attempt.worker
                models[name] = models.get(name, Spend()) + attempt.spend
                dollars[subtask.id] = dollars.get(subtask.id, 0.0) + attempt.spend.priced_dollars
    costliest = nlargest(most, ((spent, id_) for id_, spent in dollars.items() if spent > 0))
    return AttemptCosts(failures, failed, models, tuple(id_ for _, id_ in costliest))


# ---- estimate view ---------------------------------------------------------------------------------------------------
# Estimates of cost and duration from comparable landed subtasks. An estimate needs at least five.
#
# Subtasks in the same repository are comparable if they have the same worker, model and size. `fleet/app/past_runs.py`
# reads those of past runs. This module summarizes them together with those of the run. The remaining work of a run is
# only extrapolated from its own landed subtasks.


@dataclass(frozen=True, slots=True)
class LandedCost:
    """The cost and duration of a landed subtask."""

    worker: str
    size: Size
    model: str | None
    dollars: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class EstimateView:
    """Estimates for the subtasks of a run, without model calls."""

    estimates: tuple[SubtaskEstimate, ...]
    """For each worker and size in the plan or, without a plan, in past runs. Empty if too few subtasks landed."""


def landed_subtasks(state: RunState) -> Iterator[LandedCost]:
    """The subtasks of a run that landed with a change."""
    for subtask in state.subtasks.values():
        last = subtask.last
        if last is None or not subtask.has_own_commit:
            continue
        spend = subtask.spend
        seconds = (
            sum(map(_seconds, subtask.attempts)) if state.epoch == 1 else None
        )  # after a resume, the time includes interruptions
        yield LandedCost(last.worker, last.size, last.model, spend.dollars if spend.calls else None, seconds)


def _seconds(attempt: Attempt) -> float:
    """The duration of an attempt until its checks passed or it failed."""
    end = attempt.verified_at if attempt.verified_at is not None else attempt.ended_at
    return max(0.0, end - attempt.started_at) if end is not None else 0.0


def estimates_of(landed: Iterable[LandedCost]) -> tuple[SubtaskEstimate, ...]:
    """An estimate for each sufficiently large group of comparable subtasks."""
    groups: dict[tuple[str, Size, str | None], list[LandedCost]] = {}
    for each in landed:
        groups.setdefault((each.worker, each.size, each.model), []).append(each)
    return tuple(
        SubtaskEstimate(
            worker=worker,
            size=size,
            model=model,
            landed=len(group),
            dollars=_spread([each.dollars for each in group if each.dollars is not None]),
            seconds=_spread([each.seconds for each in group if each.seconds is not None]),
        )
        for (worker, size, model), group in groups.items()
        if len(group) >= ENOUGH
    )


def _spread(amounts: Sequence[float]) -> Spread | None:
    if len(amounts) < ENOUGH:
        return None
    return Spread(median=round(median(amounts), 6), low=round(min(amounts), 6), high=round(max(amounts), 6))


def plan_estimates(subtasks: Iterable[Subtask], known: Sequence[SubtaskEstimate]) -> tuple[SubtaskEstimate, ...]:
    """The known estimates for these subtasks. A worker and size without an estimate has a row without figures."""
    kinds = dict.fromkeys((spec.worker, size_of(spec.estimate), spec.model) for spec in subtasks)
    rows: dict[SubtaskEstimate, None] = {}
    for worker, size, model in kinds:
        if worker != PLANNER:
            alike = [each for each in known if (each.worker, each.size) == (worker, size)]
            found = [each for each in alike if model is None or each.model == model]
            rows.update(dict.fromkeys(found or [SubtaskEstimate(worker=worker, size=size)]))
    return tuple(rows)


def estimate_view(plan: Plan | None, known: tuple[SubtaskEstimate, ...]) -> EstimateView:
    return EstimateView(known if plan is None else plan_estimates(plan.subtasks, known))


def run_estimates(state: RunState) -> tuple[SubtaskEstimate, ...]:
    """Estimates for the open subtasks of a run, from its own landed subtasks or, with too few, from past runs."""
    if state.ended or state.rehearsal is not None or state.relanding is not None:
        return ()
    own = estimates_of(landed_subtasks(state))
    seen = {(each.worker, each.size, each.model) for each in own}
    past = [each for each in state.past_estimates if (each.worker, each.size, each.model) not in seen]
    return plan_estimates(map(state.spec, state.subtasks.ids(state.subtasks.open)), (*own, *past))


def remaining_view(state: RunState, now: float, *, alive: bool) -> RemainingView | None:
    """Return None if too few or all subtasks have landed, the run waits for a person, or it has stopped.

    Most planner calls happen early, so planner cost is kept as it is. Worker cost grows with landed subtasks.
    """
    landed = progress(state)
    left = landed.total - landed.done
    waits = not alive or state.ended or (not any(state.underway()) and bool(needed(state, now, alive=alive)))
    if waits or landed.done < ENOUGH or left <= 0:
        return None
    share = landed.total / landed.done
    planners = sum((state.spend.get(role, Spend()) for role in ("planner", "sub_planner")), Spend())
    spent = state.spent.dollars
    dollars = None if spent is None else spent + (spent - planners.priced_dollars) * (share - 1)
    seconds = state.seconds(now)
    return RemainingView(landed.done, landed.total, seconds * (share - 1), dollars)
