"""Outages of the model service: when a human is asked about them, with which text, and when a run gives up."""

import math
from collections.abc import Iterator

from fleet.core.plans.limits import Policy
from fleet.core.policy.effects import CallPlanner, RunAttempt, effects
from fleet.core.state import facts as f
from fleet.core.state.state import Outage, Question, RunState

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
    """Why the run ends, if it only waits for calls and no one answered the question about them in time."""
    for question, scope, outage in _open_outages(state):
        if now >= _deadline(state, question, outage):
            if not all(isinstance(command, RunAttempt | CallPlanner) for command in effects(state, now)):
                return None
            return f"no one answered {question.id}, and every call waits: {outage_text(scope, outage)}"
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
        question=f"No new agents start: {outage_text(scope, outage)}. Calls wait; no work is lost. "
        f"{_advice(outage)} {_consequence(state.policy, outage)}",
        options=("continue",),
        evidence=outage.why,
        service=scope,
    )


def outage_text(scope: str, outage: Outage) -> str:
    service = f"the models' service, for {scope}," if scope else "the models' service"
    return f"{service} {_CONDITIONS[outage.condition]} ({outage.why})"


_CONDITIONS: dict[f.ServiceCondition, str] = {
    "up": "answers",
    "down": "does not answer",
    "limited": "answers no call, because of a limit",
    "refused": "refuses us",
}


def _advice(outage: Outage) -> str:
    if outage.condition in ENDED_BY_HUMANS:
        return "Fix the account and answer anything; to use another key, stop the program and `fleet resume` with it."
    return "It is called periodically, and the run continues when it answers; answer anything to call it now."


def _consequence(policy: Policy, outage: Outage) -> str:
    minutes = (policy.answer_wait_s if outage.condition in ENDED_BY_HUMANS else policy.service_lost_s) / 60
    wait = f"{minutes / 60:.3g} hours" if minutes >= HOURS_FROM else f"{minutes:.3g} minutes"
    return f"Without an answer the run ends as partial after {wait}; `fleet resume` continues it."
