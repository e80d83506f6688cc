"""What a run needs from a person, the most urgent first. The header, the overview and the page of runs show it."""

from dataclasses import dataclass

from dashboards.runs.run_follower import FollowedRun
from dashboards.text.formats import counted
from dashboards.text.question_text import ends_text
from dashboards.text.safe import safe
from fleet.core.policy.budget import over_budget
from fleet.core.policy.requests import (
    awaits_approval,
    is_being_revised,
    is_unreviewed,
    objections,
    waiting_for_approval,
)
from fleet.core.state.state import Question, RunState
from fleet.core.views.question_view import ends_in, waiting_for

SHOWN = 4  # failures, by their class


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person."""

    key: str
    """The key of its row: a question, or the name of an action."""
    text: str
    how: str
    """What to press."""
    more: tuple[str, ...] = ()
    """What was tried, what waits for it, and until when."""


def needs(run: FollowedRun) -> list[Need]:
    state = run.state
    if state is None or state.ended:
        return []
    needed: list[Need] = []
    if not run.alive and run.loaded:
        why = safe(run.feed.last_words(), limit=200) or "no process is running it"
        needed.append(Need("resume", f"interrupted: {why}", "R resumes it"))
    if awaits_approval(state) and not is_being_revised(state):
        needed.append(Need("approve", _approval(state), "A approves, X rejects, E edits, C cancels"))
    for question in state.open_questions():
        about = f"{safe(question.about, limit=40)}: " if question.about else ""
        text = f"{question.id} {about}{safe(question.text, limit=300)}"
        needed.append(Need(f"q:{question.id}", text, "Enter answers", _context(run, state, question)))
    spent = over_budget(state, run.now)
    if spent is not None:
        needed.append(Need("budget", safe(spent), "B raises it"))
    if state.paused and not state.rests:
        needed.append(Need("pause", "paused: no new agents start", "P unpauses"))
    return needed


def _context(run: FollowedRun, state: RunState, question: Question) -> tuple[str, ...]:
    subtask = state.subtasks.get(question.about) if question.about is not None else None
    spec = state.specs.get(question.about) if question.about is not None else None
    title = safe(spec.title, limit=80) if spec is not None else ""
    failures = [each.failure.kind for each in subtask.attempts if each.failure] if subtask is not None else []
    tried = f"tried {counted(len(failures), 'time')}: {', '.join(failures[-SHOWN:])}" if failures else ""
    waits = waiting_for(state, question)
    waiting = f"{counted(waits, 'subtask')} wait{'s' * (waits == 1)} for it" if waits else ""
    ends = "" if question.aside or not run.alive else ends_text(ends_in(state, run.now))
    return tuple(filter(None, (title, tried, waiting, ends)))


def _approval(state: RunState) -> str:
    ids = waiting_for_approval(state)
    if is_unreviewed(state) and len(ids) == len(state.plan.subtasks):
        return f"the plan waits for approval: {counted(len(ids), 'subtask')}"
    reasons = "; ".join(map(safe, objections(state, ids[0]))) or "needs a review"
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return f"waits for approval: {safe(ids[0], limit=40)} ({reasons}){more}"
