"""Budgets: limits of a run and its subtasks, the remaining amounts, and whether another call fits.

A limit is enforced before a call, based on the highest possible cost of this call and the calls in flight.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.facts.facts import FailureKind
from fleet.core.plans.limits import Policy
from fleet.core.state.state import Outage, Question, RunState


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit, and how much of it is used."""

    unit: str
    limit: float
    used: float

    @property
    def is_spent(self) -> bool:
        return self.used >= self.limit

    @property
    def remaining(self) -> float:
        return max(0.0, self.limit - self.used)

    def __str__(self) -> str:
        return f"${self.limit:g}" if self.unit == "dollars" else f"{self.limit:,.10g} {self.unit}"


def run_budgets(state: RunState, now: float) -> Iterator[Budget]:
    """Return the limits of a run. Interrupted calls and unfinished review batches count in full."""
    policy, spent = state.policy, state.spent
    doubt = sum(state.pending_reviews.values(), state.doubt)
    if policy.budget_dollars is not None:
        yield Budget("dollars", policy.budget_dollars, spent.priced_dollars + doubt.of("dollars"))
    if policy.budget_tokens is not None:
        yield Budget("tokens", policy.budget_tokens, spent.usage.total + doubt.tokens)
    if policy.budget_minutes is not None:
        yield Budget("minutes", policy.budget_minutes, state.seconds(now) / 60)
    if policy.budget_attempts is not None:
        yield Budget("attempts", policy.budget_attempts, state.attempts)


def subtask_budgets(state: RunState, id_: SubtaskId, now: float) -> Iterator[Budget]:
    """The limits of a subtask that are set, counted since a human last helped. The ladder limits its attempts."""
    policy, subtask = state.policy, state.subtasks[id_]
    spent = subtask.spend
    if policy.subtask_dollars is not None:
        yield Budget("dollars", policy.subtask_dollars, spent.priced_dollars - subtask.forgiven.priced_dollars)
    if policy.subtask_tokens is not None:
        yield Budget("tokens", policy.subtask_tokens, spent.usage.total - subtask.forgiven.usage.total)
    if policy.subtask_minutes is not None:
        seconds = state.seconds_at(subtask, now) - subtask.forgiven_s
        yield Budget("minutes", policy.subtask_minutes, seconds / 60)


def over_budget(state: RunState, now: float) -> str | None:
    """Return the exhausted budget of the run, if any. No new work starts then."""
    spent = (f"the budget of {budget} is used up" for budget in run_budgets(state, now) if budget.is_spent)
    return next(spent, state.refused or None)


def over_subtask_budget(state: RunState, id_: SubtaskId, now: float) -> str | None:
    """Return the exhausted budget of a subtask, if any. A human then decides whether to raise it."""
    budgets = subtask_budgets(state, id_, now)
    return next((f"its budget of {budget} is used up" for budget in budgets if budget.is_spent), None)


def low_budget(state: RunState, now: float) -> str | None:
    """Return the budget of the run that has reached its soft limit, if any."""
    share = state.policy.budget_soft
    low = (budget for budget in run_budgets(state, now) if budget.used >= share * budget.limit)
    return next((f"{share:.0%} of the budget of {budget} is used" for budget in low), None)


def budget_wakes(state: RunState, now: float) -> Iterator[float]:
    """The times at which the run reaches the soft and the hard limit of its minutes."""
    minutes = state.policy.budget_minutes
    if minutes is not None and state.engine_since is not None:
        for share in (state.policy.budget_soft, 1.0):
            yield now + share * minutes * 60 - state.seconds(now)


# ---- before a call --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a call is not allowed."""

    kind: FailureKind
    why: str
    temporary: bool = False
    """Whether the call may still fit once the calls in flight have finished."""


def refusal(state: RunState, now: float, cost: Cost, held: Cost, subtask: SubtaskId | None) -> Refusal | None:
    """Return why a call of at most `cost` does not fit while calls in flight may cost `held`, or None."""
    if state.cancelled:
        return Refusal("spent", "the run is canceled")
    policy = state.policy
    in_dollars = policy.budget_dollars is not None or policy.subtask_dollars is not None
    if in_dollars and policy.budget_tokens is None and cost.dollars is None:
        return Refusal(
            "configuration",
            "the price of this model is unknown, so fleet can't enforce a budget in dollars. Set models.prices for it, "
            "or a budget in tokens",
        )
    if subtask is not None:
        for budget in subtask_budgets(state, subtask, now):
            if why := _too_little(budget, cost):
                return Refusal("budget", f"the subtask's {why}")
    for budget in run_budgets(state, now):
        if budget.unit == "attempts":
            continue  # started attempts may continue
        if why := _too_little(budget, cost):
            return Refusal("spent", f"the run's {why}")
        if budget.used + held.of(budget.unit) + cost.of(budget.unit) > budget.limit:
            return Refusal("spent", f"the run's budget of {budget} is reserved by calls in flight", temporary=True)
    return None


WIDENED = 0.25  # share of a budget that calls in flight may reserve beyond the usual cost


def widening(
    state: RunState, now: float, least: Cost, most: Cost, *, held: Cost, widened: Cost, subtask: SubtaskId | None
) -> float:
    """Return how far a call with `least` reserved may go towards `most`: 1 if no budget limits it.

    `held` is reserved by all calls in flight, including this one. `widened` is the part of it beyond the usual cost.
    Only a fraction of a budget may be used this way, because a crash would leave it in doubt.
    """
    shares = [1.0]
    for budget in run_budgets(state, now):
        room = min(budget.limit - budget.used - held.of(budget.unit), WIDENED * budget.limit - widened.of(budget.unit))
        shares.append(_share(room, most.of(budget.unit) - least.of(budget.unit)))
    if subtask is not None:
        for budget in subtask_budgets(state, subtask, now):
            room = budget.remaining - least.of(budget.unit)
            shares.append(_share(room, most.of(budget.unit) - least.of(budget.unit)))
    return min(shares)


def _share(room: float, more: float) -> float:
    """All of it if there is room, else half of the room: other calls will want some, too."""
    if more <= 0 or room >= more:
        return 1.0
    return max(0.0, room / 2 / more)


def _too_little(budget: Budget, cost: Cost) -> str | None:
    if budget.is_spent:
        return f"budget of {budget} is used up"
    if budget.used + cost.of(budget.unit) > budget.limit:
        return f"budget of {budget} does not cover another call"
    return None


# ---- outages ---------------------------------------------------------------------------------------------------------
# Outages of the model service: questions to a human, their texts, and when a run gives up.


HOURS_FROM = 120  # minutes
ENDED_BY_HUMANS: frozenset[f.ServiceCondition] = frozenset({"refused"})
"""Outages that a person has to end. The others may pass by themselves."""


def question_due_at(state: RunState, scope: str, outage: Outage) -> float:
    """When to ask a human: not while a question is open, and again after an answer that did not help."""
    asked = [question for question in state.questions.values() if question.service == scope]
    if any(question.answer is None for question in asked):
        return math.inf
    if outage.condition in ENDED_BY_HUMANS:
        return outage.since if outage.unanswered else math.inf
    last = max((question.asked_at for question in asked), default=-math.inf)
    return max(outage.since, last) + state.policy.service_wait_s


def given_up_reason(state: RunState, now: float) -> str | None:
    """Return why a run that waits only for model calls ends: a question about them was not answered in time."""
    for question, scope, outage in _open_outages(state):
        if now >= _deadline(state, question, outage):
            return f"no one answered {question.id}, and all calls are waiting: {outage_text(scope, outage)}"
    return None


def deadlines(state: RunState) -> list[float]:
    """When time alone may end the run because of an outage."""
    return [_deadline(state, question, outage) for question, _, outage in _open_outages(state)]


def _open_outages(state: RunState) -> Iterator[tuple[Question, str, Outage]]:
    for question in state.open_questions():
        if question.service is not None and question.service in state.service:
            yield question, question.service, state.service[question.service]


def _deadline(state: RunState, question: Question, outage: Outage) -> float:
    """When the run gives up on a question. It waits much longer for outages that may pass by themselves."""
    quiet = state.last_at + state.policy.answer_wait_s
    if outage.condition in ENDED_BY_HUMANS:
        return quiet
    return max(quiet, question.asked_at + state.policy.service_lost_s)


def question(state: RunState, scope: str, outage: Outage, now: float) -> f.QuestionAsked:
    return f.QuestionAsked(
        at=now,
        about=None,
        question=f"No new agents start: {outage_text(scope, outage)}. Calls wait, and no work is lost. "
        f"{_advice(outage)} {_consequence(state.policy, outage)}",
        options=("continue",),
        evidence=outage.why,
        service=scope,
    )


def outage_text(scope: str, outage: Outage | f.ServiceChanged) -> str:
    service = f"the model service for {scope}" if scope else "the model service"
    return f"{service} {_CONDITIONS[outage.condition]} ({outage.why})"


_CONDITIONS: dict[f.ServiceCondition, str] = {
    "up": "answers",
    "down": "does not respond",
    "limited": "rejects all calls because of a limit",
    "refused": "refuses us",
}


def _advice(outage: Outage) -> str:
    if outage.condition in ENDED_BY_HUMANS:
        return "Fix the account, then send any answer. To use another key, stop fleet and run `fleet resume` with it."
    return "fleet retries periodically, and the run continues when the service responds. Send any answer to retry now."


def _consequence(policy: Policy, outage: Outage) -> str:
    minutes = (policy.answer_wait_s if outage.condition in ENDED_BY_HUMANS else policy.service_lost_s) / 60
    wait = f"{minutes / 60:.3g} hours" if minutes >= HOURS_FROM else f"{minutes:.3g} minutes"
    return f"Without an answer, the run ends as partial after {wait}. `fleet resume` continues it."
