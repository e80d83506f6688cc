"""The causes of notifications. Each has a unique key, so that it is sent only once."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from fleet.core.base.ids import RunId
from fleet.features.notify.channels import Event
from fleet.read.run import RunSnapshot
from fleet.read.run_view import RunEnding

GOOD_ENDINGS = frozenset({"landed", "cancelled"})
NAMED = 5  # subtasks


@dataclass(frozen=True, slots=True)
class NotificationCause:
    """A reason for a notification."""

    key: str
    """Unique in the run, and stable as long as the cause persists."""
    event: Event
    title: str
    """A summary of the event. Apart from names, it contains no text of a model or a repository."""
    text: str
    """The details. Untrusted."""
    command: str
    """The command to run next, or empty."""
    since: float


def causes(run: RunSnapshot, *, incident_s: float) -> tuple[NotificationCause, ...]:
    """Return the current causes. Those that were resolved are no longer included."""
    if run.ending is not None:
        return (_ending(run.run, run.ending),)
    return (*_open(run, incident_s), *(() if run.alive else _death(run)))


def _open(run: RunSnapshot, incident_s: float) -> Iterator[NotificationCause]:
    name = run.run
    for question in run.questions.values():
        about = f" about {question.about}" if question.about else ""
        reply = f"{question.command} --run {name}"
        title = f"question {question.id}{about}"
        yield NotificationCause(
            f"question:{question.id}", "question", title, question.question, reply, question.asked_at
        )
    if run.plan_waits:
        waiting = run.waiting_for_approval
        more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        title, version = f"plan version {run.plan.version} is waiting for approval", run.plan.version
        named = f"{', '.join(waiting[:NAMED])}{more}"
        yield NotificationCause(
            f"review:{version}", "review", title, named, f"fleet approve {name}", run.versions()[-1].at
        )
    for incident in sorted(run.incidents(), key=lambda each: each.number):
        if incident.closed_at is None and run.now - incident.opened_at >= incident_s:
            title = f"incident {incident.number} in {incident.subtask} is still open"
            why, command = incident.troubles[-1].summary, f"fleet show {name} --incident {incident.number}"
            yield NotificationCause(f"incident:{incident.number}", "incident", title, why, command, incident.opened_at)
    if low := run.low_budget:
        key = f"budget:{sha256(low.encode()).hexdigest()[:12]}"
        yield NotificationCause(key, "budget", "a budget is almost used up", low, f"fleet limits {name}", run.last_at)


def _death(run: RunSnapshot) -> Iterator[NotificationCause]:
    if run.engine is not None:
        title, command = "its process exited unexpectedly", f"fleet resume {run.run}"
        text = "No work is lost: landed commits are on the result branch, finished work is in the store."
        yield NotificationCause(f"died:{run.engine}", "died", title, text, command, run.last_at)


def _ending(run: RunId, how: RunEnding) -> NotificationCause:
    event: Event = "ended" if how.ending in GOOD_ENDINGS else "failed"
    command = f"fleet merge {run}" if how.is_good else f"fleet status {run}"
    return NotificationCause(f"ended:{how.at:.6f}", event, f"the run has ended: {how.ending}", how.why, command, how.at)
