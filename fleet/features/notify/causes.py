"""Why a run notifies people: what is true now and has a name of its own, so that each cause is sent once."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from fleet.core.policy.requests import awaits_approval, is_being_revised, waiting_for_approval
from fleet.core.state.state import RunState
from fleet.features.notify.channels import Event
from fleet.read.question_view import reply_command

GOOD_ENDINGS = frozenset({"landed", "cancelled"})
NAMED = 5  # subtasks in a text


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason to tell someone something."""

    key: str
    """Unique in its run, and the same as long as it is the same reason."""
    event: Event
    title: str
    """What happened; no text of a model or a repository, except for names."""
    text: str
    """The details. Untrusted."""
    command: str
    """What to type; empty if there is nothing to do."""
    since: float


def causes(state: RunState, now: float, *, alive: bool, incident_s: float) -> tuple[Cause, ...]:
    """Everything that is worth a word now. What was dealt with meanwhile is gone."""
    if state.ended:
        return (_ending(state),)
    return (*_open(state, now, incident_s), *(() if alive else _death(state)))


def _open(state: RunState, now: float, incident_s: float) -> Iterator[Cause]:
    run = state.run
    for question in state.open_questions():
        about = f" about {question.about}" if question.about else ""
        reply = f"{reply_command(question)} --run {run}"
        title = f"question {question.id}{about}"
        yield Cause(f"question:{question.id}", "question", title, question.text, reply, question.asked_at)
    if awaits_approval(state) and not is_being_revised(state):
        waiting = waiting_for_approval(state)
        more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        title, version = f"plan version {state.plan.version} waits for approval", state.plan.version
        named = f"{', '.join(waiting[:NAMED])}{more}"
        yield Cause(f"review:{version}", "review", title, named, f"fleet approve {run}", state.versions[-1].at)
    for index in state.troubled.values():
        incident = state.incidents[index]
        if now - incident.opened_at >= incident_s:
            title = f"incident {incident.number} at {incident.subtask} is still open"
            why = incident.troubles[-1].summary
            command = f"fleet show {run} --incident {incident.number}"
            yield Cause(f"incident:{incident.number}", "incident", title, why, command, incident.opened_at)
    if state.low:
        key = f"budget:{sha256(state.low.encode()).hexdigest()[:12]}"
        yield Cause(key, "budget", "a budget is nearly used", state.low, f"fleet limits {run}", state.last_at)


def _death(state: RunState) -> Iterator[Cause]:
    if state.engine_since is not None:
        title, command = "its process died", f"fleet resume {state.run}"
        text = "Nothing is lost: what landed is on its branch, finished work is in the store."
        yield Cause(f"died:{state.epoch}", "died", title, text, command, state.last_at)


def _ending(state: RunState) -> Cause:
    event: Event = "ended" if state.ending in GOOD_ENDINGS else "failed"
    command = f"fleet merge {state.run}" if state.ending == "landed" else f"fleet status {state.run}"
    at = state.ended_at or state.last_at
    return Cause(f"ended:{at:.6f}", event, f"it ended: {state.ending}", state.ending_why, command, at)
