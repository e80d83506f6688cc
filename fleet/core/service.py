"""What is known of the models' service, as facts change it: what calls wait for, and which questions that settles.

A part of history, as `queue.py` is: pure, and it means the same for ever.
"""

from collections.abc import Iterable
from dataclasses import replace

from fleet.core import facts as f
from fleet.core.state import Outage, Question, RunState


def changed(state: RunState, fact: f.ServiceChanged) -> RunState:
    if fact.condition == "up":
        left = {scope: outage for scope, outage in state.service.items() if scope != fact.scope}
        settled = (question for question in state.open_questions() if question.service == fact.scope)
        return _settled(replace(state, service=left), settled, "the service answers again")
    known = state.service.get(fact.scope)
    since = known.since if known is not None and known.condition == fact.condition else fact.at
    outage = Outage(condition=fact.condition, why=fact.why, since=since)
    return replace(state, service={**state.service, fact.scope: outage})


def unknown(state: RunState) -> RunState:
    """Another engine begins, maybe with another key or model: it finds out anew what holds everything up."""
    held_up = (question for question in state.open_questions() if question.holds_all)
    return _settled(replace(state, service={}), held_up, "the run goes on, and finds out anew")


def _settled(state: RunState, questions: Iterable[Question], why: str) -> RunState:
    settled = {question.id: replace(question, answer=why, answered_by="fleet") for question in questions}
    return replace(state, questions={**state.questions, **settled}) if settled else state
