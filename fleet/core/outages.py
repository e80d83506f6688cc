"""The models' service as a run knows it: when a human is asked about what all calls wait for, and in which words."""

import math

from fleet.core import facts as f
from fleet.core.commands import CallPlanner, RunAttempt, effects
from fleet.core.state import Outage, Question, RunState

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


def given_up(state: RunState, now: float) -> Question | None:
    """The question only a human can settle that nobody does, where what runs only waits for its calls."""
    if now < state.last_at + state.policy.answer_wait_s:
        return None
    if not all(isinstance(command, RunAttempt | CallPlanner) for command in effects(state, now)):
        return None
    refused = {scope for scope, outage in state.service.items() if outage.condition in MENDED_BY_HUMANS}
    return next((question for question in state.open_questions() if question.service in refused), None)


def question(scope: str, outage: Outage, now: float) -> f.QuestionAsked:
    return f.QuestionAsked(
        at=now,
        about=None,
        question=f"Nothing new begins: {in_words(scope, outage)}. Calls wait, nothing is lost. {_way_out(outage)}",
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
