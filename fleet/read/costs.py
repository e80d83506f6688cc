"""What a run costs, by role, by model and by subtask; and what subtasks to come may cost and take."""

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
    """What the attempts of a run cost."""

    failures: int
    """Attempts that failed."""
    failed: Spend
    """What they cost."""
    models: Mapping[str, Spend]
    """By model, or by worker where it names none."""
    costliest: tuple[SubtaskId, ...]
    """The subtasks that cost the most, some of them."""


def attempt_costs(state: RunState, most: int) -> AttemptCosts:
    """At most so many subtasks are named."""
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
# What subtasks to come may cost and take: as comparable subtasks did that landed. With fewer than five: no number.
#
# Comparable are subtasks of one repository with the same worker, the same model and the same size.
# `fleet/app/past_runs.py` reads those of past runs; this module summarizes them, and those of the run itself. What is
# left of a run is extrapolated from its own landed subtasks alone.


@dataclass(frozen=True, slots=True)
class LandedSubtask:
    """What one subtask cost and took until it landed."""

    worker: str
    size: Size
    model: str | None
    dollars: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class EstimateView:
    """What the subtasks of a run may cost and take. No model is called for it."""

    estimates: tuple[SubtaskEstimate, ...]
    """Of each worker and size in the plan; without a plan, of all that landed in past runs. Empty: not enough did."""


def landed_subtasks(state: RunState) -> Iterator[LandedSubtask]:
    """The subtasks of a run that landed with a change."""
    for subtask in state.subtasks.values():
        last = subtask.last
        if last is None or not subtask.has_own_commit:
            continue
        spend = subtask.spend
        seconds = sum(map(_seconds, subtask.attempts)) if state.epoch == 1 else None  # else some hours had no engine
        yield LandedSubtask(last.worker, last.size, last.model, spend.dollars if spend.calls else None, seconds)


def _seconds(attempt: Attempt) -> float:
    """The time of an attempt until its own checks passed, or it failed."""
    end = attempt.verified_at if attempt.verified_at is not None else attempt.ended_at
    return max(0.0, end - attempt.started_at) if end is not None else 0.0


def estimates_of(landed: Iterable[LandedSubtask]) -> tuple[SubtaskEstimate, ...]:
    """An estimate by each group of comparable subtasks that is large enough."""
    groups: dict[tuple[str, Size, str | None], list[LandedSubtask]] = {}
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
    """The known estimates that concern these subtasks. Each worker and size without one has a row without figures."""
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
    """Of the open subtasks of a run: as its own landed ones if there are enough of them, else as those of past runs."""
    if state.ended or state.rehearsal is not None or state.relanding is not None:
        return ()
    own = estimates_of(landed_subtasks(state))
    seen = {(each.worker, each.size, each.model) for each in own}
    past = [each for each in state.past_estimates if (each.worker, each.size, each.model) not in seen]
    return plan_estimates(map(state.spec, state.subtasks.ids(state.subtasks.open)), (*own, *past))


def remaining_view(state: RunState, now: float, *, alive: bool) -> RemainingView | None:
    """None where nothing can be said: too little has landed, all has, or the run waits for a person or has stopped.

    Planners are called most at the beginning, so their cost is taken as it is; that of workers grows with what lands.
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
