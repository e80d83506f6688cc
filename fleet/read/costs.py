"""What a run costs: by role, by model, what failed attempts cost, and which subtasks cost the most."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost, Spend
from fleet.core.facts.facts import Role, SubtaskEstimate
from fleet.core.policy.budget import Budget, run_budgets
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Subtasks, SubtaskState
from fleet.read.estimate_view import remaining_view, run_estimates
from fleet.read.run_view import spend_by_role

NANO = 1_000_000_000  # parts of a dollar: sums of whole numbers stay exact while they change


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
