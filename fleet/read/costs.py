"""What a run costs, by role, by model and by subtask; and what subtasks to come may cost and take."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from statistics import median

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost, Spend
from fleet.core.facts.facts import Role, Spread, SubtaskEstimate
from fleet.core.plans.limits import ENOUGH, Size, size_of
from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.policy.budget import Budget, run_budgets
from fleet.core.state.state import RunState
from fleet.core.state.status import progress
from fleet.core.state.subtasks import Attempt, Subtasks, SubtaskState
from fleet.read.question_view import needed
from fleet.read.run_view import RemainingView

ROLES: tuple[Role, ...] = ("planner", "worker")  # roles that every run has
NANO = 1_000_000_000  # parts of a dollar: sums of whole numbers stay exact while they change


def spend_by_role(state: RunState) -> dict[Role, Spend]:
    return {**{role: Spend() for role in ROLES}, **state.spend}


@dataclass(frozen=True, slots=True)
class Amounts:
    """Calls with their tokens and their cost."""

    calls: int
    read: int
    cached: int
    """Of what was read."""
    written: int
    parts: int
    """Of a dollar; calls without a price count for nothing."""

    @property
    def dollars(self) -> float:
        return self.parts / NANO


def amounts_of(spend: Spend) -> Amounts:
    usage = spend.usage
    parts = round(spend.priced_dollars * NANO)
    return Amounts(spend.calls, usage.prompt, usage.cache_read, usage.output, parts)


@dataclass(frozen=True, slots=True)
class CostlySubtask:
    """One of the subtasks that cost the most."""

    id: SubtaskId
    dollars: float
    attempts: int


Key = tuple[str, str]
"""A model, and what is counted of it."""
COUNTED = ("calls", "read", "cached", "written", "parts")


class CostBook:
    """What attempts cost: by model, in vain, by subtask. Only subtasks that changed are looked at again."""

    def __init__(self) -> None:
        self.failed = self.failures = 0
        """What attempts cost that failed, in parts of a dollar; and how many they are."""
        self._counts = Counter[Key]()
        self._of = dict[SubtaskId, int]()
        """What each subtask cost, in parts of a dollar."""
        self._seen: Subtasks | None = None

    def look(self, subtasks: Subtasks) -> None:
        before = self._seen
        changed = subtasks.values() if before is None else subtasks.changed_since(before)
        for subtask in changed:
            if before is not None and subtask.id in before:
                self._add(before[subtask.id], -1)
            self._add(subtask, 1)
        self._seen = subtasks

    def _add(self, subtask: SubtaskState, sign: int) -> None:
        whole = 0
        for attempt in subtask.attempts:
            amounts = amounts_of(attempt.spend)
            whole += amounts.parts
            if attempt.failure is not None:
                self.failed, self.failures = self.failed + sign * amounts.parts, self.failures + sign
            if amounts.calls:
                name = attempt.model or attempt.worker
                numbers = (amounts.calls, amounts.read, amounts.cached, amounts.written, amounts.parts)
                for kind, number in zip(COUNTED, numbers, strict=True):
                    self._counts[name, kind] += sign * number
        self._of[subtask.id] = whole

    def models(self) -> Mapping[str, Amounts]:
        """By model, or by worker where it names none."""
        names = sorted({name for name, _ in self._counts if self._counts[name, "calls"]})
        return {name: Amounts(*(self._counts[name, kind] for kind in COUNTED)) for name in names}

    def costliest(self, most: int) -> Sequence[tuple[int, SubtaskId]]:
        """At most so many subtasks with what each cost, in parts of a dollar."""
        return nlargest(most, ((parts, id_) for id_, parts in self._of.items() if parts > 0))


@dataclass(frozen=True, slots=True)
class CostView:
    """What a run costs at one moment."""

    spent: Spend
    in_all: float | None
    """What it will cost in all, if it continues as it did; None where that says nothing."""
    per_landed: float | None
    """For each landed subtask; None if none has landed, or a price is unknown."""
    budgets: tuple[Budget, ...]
    failures: int
    """Attempts that failed."""
    failed_dollars: float
    failed_share: float | None
    """Of everything; None if nothing has a price."""
    in_doubt: Cost
    """What interrupted calls may have cost in addition, at most."""
    estimates: tuple[SubtaskEstimate, ...]
    simulated: bool
    """Whether its model is simulated, and priced as if it were real."""
    roles: Mapping[Role, Amounts]
    models: Mapping[str, Amounts]
    """Of workers alone."""
    costliest: tuple[CostlySubtask, ...]


def cost_view(state: RunState, now: float, book: CostBook, *, alive: bool, most: int) -> CostView:
    """`book` is kept from one moment of the run to the next. At most so many subtasks are named."""
    book.look(state.subtasks)
    spent, left = state.spent, remaining_view(state, now, alive=alive)
    failed = book.failed / NANO
    return CostView(
        spent=spent,
        in_all=left.dollars if left is not None else None,
        per_landed=spent.dollars / state.commits if state.commits and spent.dollars is not None else None,
        budgets=tuple(run_budgets(state, now)),
        failures=book.failures,
        failed_dollars=failed,
        failed_share=failed / spent.priced_dollars if spent.priced_dollars else None,
        in_doubt=state.doubt,
        estimates=run_estimates(state),
        simulated=state.simulated,
        roles={role: amounts_of(spend) for role, spend in spend_by_role(state).items()},
        models=book.models(),
        costliest=tuple(
            CostlySubtask(id_, parts / NANO, len(state.subtasks[id_].attempts)) for parts, id_ in book.costliest(most)
        ),
    )


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
