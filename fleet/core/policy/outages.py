"""The models' service as a run knows it: when a human is asked about what all calls wait for, and in which words."""

import math
from collections.abc import Iterator

from fleet.core import facts as f
from fleet.core.commands import CallPlanner, RunAttempt, effects
from fleet.core.policy import Policy
from fleet.core.state import Outage, Question, RunState

HOURS_FROM = 120  # minutes
MENDED_BY_HUMANS: frozenset[f.ServiceCondition] = frozenset({"refused"})


def asked_at(state: RunState, scope: str, outage: Outage) -> float:
    """When a human is to be asked; never while the question is open; again after an answer that mended nothing."""
    asked = [question for question in state.questions.values() if question.service == scope]
    if any(question.answer is None for question in asked):
        return math.inf
    if outage.condition in MENDED_BY_HUMANS:
        return outage.since if outage.heard else math.inf
    last = max((question.asked_at for question in asked), default=-math.inf)
    return max(outage.since, last) + state.policy.service_wait_s


def given_up(state: RunState, now: float) -> str | None:
    """Why the run ends although its calls may come through one day, where what runs only waits for them."""
    if not all(isinstance(command, RunAttempt | CallPlanner) for command in effects(state, now)):
        return None
    for question, scope, outage in _unanswered(state):
        if now >= _ends_at(state, question, outage):
            return f"nobody answered {question.id}, and every call waits: {in_words(scope, outage)}"
    return None


def ends_at(state: RunState) -> list[float]:
    """When time alone may end the run because of what its calls wait for."""
    return [_ends_at(state, question, outage) for question, _, outage in _unanswered(state)]


def _unanswered(state: RunState) -> Iterator[tuple[Question, str, Outage]]:
    for question in state.open_questions():
        if question.service is not None and question.service in state.service:
            yield question, question.service, state.service[question.service]


def _ends_at(state: RunState, question: Question, outage: Outage) -> float:
    """What may pass by itself is waited for much longer than what only a human can mend; each answer begins it anew."""
    quiet = state.last_at + state.policy.answer_wait_s
    if outage.condition in MENDED_BY_HUMANS:
        return quiet
    return max(quiet, question.asked_at + state.policy.service_lost_s)


def question(state: RunState, scope: str, outage: Outage, now: float) -> f.QuestionAsked:
    return f.QuestionAsked(
        at=now,
        about=None,
        question=f"Nothing new begins: {in_words(scope, outage)}. Calls wait, nothing is lost. "
        f"{_way_out(outage)} {_else(state.policy, outage)}",
        options=("go on",),
        evidence=outage.why,
        service=scope,
    )


def in_words(scope: str, outage: Outage) -> str:
    whose = f"the models' service, for {scope}," if scope else "the models' service"
    return f"{whose} {_SAID[outage.condition]} ({outage.why})"


_SAID: dict[f.ServiceCondition, str] = {
    "up": "answers",
    "down": "does not answer",
    "limited": "answers no call, because of a limit",
    "refused": "refuses us",
}


def _way_out(outage: Outage) -> str:
    if outage.condition in MENDED_BY_HUMANS:
        return "Mend the account and answer anything; for another key, stop the program and `fleet resume` with it."
    return "It is asked now and then, and the run goes on by itself when it answers; answer anything to ask it now."


def _else(policy: Policy, outage: Outage) -> str:
    minutes = (policy.answer_wait_s if outage.condition in MENDED_BY_HUMANS else policy.service_lost_s) / 60
    wait = f"{minutes / 60:.3g} hours" if minutes >= HOURS_FROM else f"{minutes:.3g} minutes"
    return f"Without an answer the run ends as partial after {wait}; `fleet resume` goes on."
