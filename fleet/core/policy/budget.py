"""Budgets: what a run and each of its subtasks may use, what is left of it, and whether one more call fits.

Pure. A limit is held before a call: what a call may cost at most is weighed, together with the calls under way.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.core.facts import FailureKind
from fleet.core.ids import SubtaskId
from fleet.core.state import RunState
from fleet.core.usage import Cost


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit, and how much of it is gone."""

    unit: str
    limit: float
    gone: float

    @property
    def spent(self) -> bool:
        return self.gone >= self.limit

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.gone)

    def __str__(self) -> str:
        return f"${self.limit:g}" if self.unit == "dollars" else f"{self.limit:,.10g} {self.unit}"


def run_budgets(state: RunState, now: float) -> Iterator[Budget]:
    """The limits of a run that are set. Calls in doubt count in full: nobody knows that they cost less."""
    policy, spent, doubt = state.policy, state.spent, state.doubt
    if policy.budget_dollars is not None:
        yield Budget("dollars", policy.budget_dollars, spent.priced_dollars + doubt.of("dollars"))
    if policy.budget_tokens is not None:
        yield Budget("tokens", policy.budget_tokens, spent.usage.total + doubt.tokens)
    if policy.budget_minutes is not None:
        yield Budget("minutes", policy.budget_minutes, state.seconds(now) / 60)
    if policy.budget_attempts is not None:
        yield Budget("attempts", policy.budget_attempts, state.attempts)


def subtask_budgets(state: RunState, id_: SubtaskId, now: float) -> Iterator[Budget]:
    """The limits of a subtask that are set, since a human last helped. How many attempts it has is the ladder's."""
    policy, subtask = state.policy, state.subtasks[id_]
    spent = subtask.spend
    if policy.subtask_dollars is not None:
        gone = spent.priced_dollars - subtask.forgiven.priced_dollars
        yield Budget("dollars", policy.subtask_dollars, gone)
    if policy.subtask_tokens is not None:
        yield Budget("tokens", policy.subtask_tokens, spent.usage.total - subtask.forgiven.usage.total)
    if policy.subtask_minutes is not None:
        seconds = state.seconds_at(subtask, now) - subtask.forgiven_s
        yield Budget("minutes", policy.subtask_minutes, seconds / 60)


def over_budget(state: RunState, now: float) -> str | None:
    """Which budget of the run is spent: nothing new begins."""
    spent = (f"the budget of {budget} is spent" for budget in run_budgets(state, now) if budget.spent)
    return next(spent, state.refused or None)


def over_subtask_budget(state: RunState, id_: SubtaskId, now: float) -> str | None:
    """Which budget of a subtask is spent: a human decides whether it gets more."""
    budgets = subtask_budgets(state, id_, now)
    return next((f"its budget of {budget} is spent" for budget in budgets if budget.spent), None)


def low_budget(state: RunState, now: float) -> str | None:
    """Which budget of the run has reached its soft limit."""
    share = state.policy.budget_soft
    low = (budget for budget in run_budgets(state, now) if budget.gone >= share * budget.limit)
    return next((f"{share:.0%} of the budget of {budget} is used" for budget in low), None)


def wakes(state: RunState, now: float) -> Iterator[float]:
    """When time alone reaches a limit of the run, the soft one and the hard one."""
    minutes = state.policy.budget_minutes
    if minutes is not None and state.engine_since is not None:
        for share in (state.policy.budget_soft, 1.0):
            yield now + share * minutes * 60 - state.seconds(now)


# ---- before a call --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not be made."""

    kind: FailureKind
    why: str
    passes: bool = False
    """It may fit yet, when the calls under way turn out cheaper than they might be."""


def refusal(state: RunState, now: float, cost: Cost, held: Cost, subtask: SubtaskId | None) -> Refusal | None:
    """Why there is no room for a call of at most `cost`, where calls under way may cost `held`; None where there is."""
    if state.cancelled:
        return Refusal("spent", "the run is cancelled")
    policy = state.policy
    blind = policy.budget_tokens is None and (policy.budget_dollars is not None or policy.subtask_dollars is not None)
    if blind and cost.dollars is None:
        return Refusal(
            "configuration",
            "the price of this model is unknown, so a budget in dollars can't be kept: set models.prices for it, or a "
            "budget in tokens",
        )
    if subtask is not None:
        for budget in subtask_budgets(state, subtask, now):
            if why := _too_little(budget, cost):
                return Refusal("budget", f"the subtask's {why}")
    for budget in run_budgets(state, now):
        if budget.unit == "attempts":
            continue  # those that have begun go on
        if why := _too_little(budget, cost):
            return Refusal("spent", f"the run's {why}")
        if budget.gone + held.of(budget.unit) + cost.of(budget.unit) > budget.limit:
            return Refusal("spent", f"the run's budget of {budget} is taken by the calls under way", passes=True)
    return None


def _too_little(budget: Budget, cost: Cost) -> str | None:
    if budget.spent:
        return f"budget of {budget} is spent"
    if budget.gone + cost.of(budget.unit) > budget.limit:
        return f"budget of {budget} does not cover another call"
    return None
