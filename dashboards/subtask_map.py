"""Symbols and short texts for runs and subtasks. Each state has a symbol and a word, so color is never the only cue."""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.text.formats import counted
from dashboards.text.incident_text import ends_text
from dashboards.text.safe import safe
from fleet.read.follow import FollowedRun
from fleet.read.question_view import Approval, Needed, QuestionView
from fleet.read.run import RunSnapshot
from fleet.read.run_view import RunStatus

Span = tuple[str, str]
"""Text with its tone: a name such as `good` or `dim`, never a color."""

RUN_MARKS: dict[RunStatus, Span] = {
    "landed": ("✔", "good"),
    "running": ("●", "busy"),
    "planning": ("●", "busy"),
    "paused": ("‖", "attention"),
    "draining": ("‖", "busy"),
    "awaiting approval": ("?", "attention"),
    "waiting for an answer": ("?", "attention"),
    "waiting for the planner": ("…", "busy"),
    "over budget": ("!", "attention"),
    "interrupted": ("✘", "bad"),
    "refused": ("✘", "bad"),
    "partial": ("✘", "bad"),
    "cancelled": ("✘", "bad"),
    "aborted": ("✘", "bad"),
    "budget": ("✘", "bad"),
    "failed": ("✘", "bad"),
}
"""The symbol and the tone of a run, by status."""
MARKS: Mapping[str, Span] = {
    # subtasks
    "waiting": ("·", "dim"),
    "ready": ("○", ""),
    "verifying": ("◐", "check"),
    "merged": ("✔", "good"),
    "dropped": ("-", "dim"),
    "escalated": ("?", "attention"),
    "split": ("┬", "dim"),
    # attempts
    "starting": ("○", "dim"),
    "working": ("●", "busy"),
    "checking": ("◐", "check"),
    "landing": ("▲", "queue"),
    # cells in the map of subtasks, if their names differ
    "asks": ("?", "attention"),
    "gone": ("-", "dim"),
    "failed": ("✘", "bad"),
} | RUN_MARKS
"""The symbol and the tone of the states of subtasks, attempts and runs. All other states are failures."""


def marked(state: str) -> Span:
    """A state with its symbol."""
    sign, tone = MARKS.get(state, ("✘", "bad"))
    return f"{sign} {state}", tone


def age(seconds: float) -> str:
    """A duration in at most six characters."""
    seconds = max(0, int(seconds))
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes}m{rest:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}" if hours < 100 else f"{hours // 24}d{hours % 24:02}"  # noqa: PLR2004 - four days


def model_name(model: str) -> str:
    """The name of a model, without the vendor prefix."""
    return model.removeprefix("claude-")


# ---- needs -----------------------------------------------------------------------------------------------------------
# Pending requests to a person, most urgent first. Shown in the header, the overview and the list of runs.


SHOWN = 4  # failures, by class


@dataclass(frozen=True, slots=True)
class Need:
    """A pending request to a person."""

    key: str
    """The key of its row: a question, or the name of an action."""
    text: str
    how: str
    """The key to press."""
    more: tuple[str, ...] = ()
    """Earlier attempts, waiting subtasks and the deadline."""


def needs(run: FollowedRun) -> list[Need]:
    """The current needs of a run, most urgent first."""
    snapshot = run.snapshot
    return [] if snapshot is None else needs_at(run, snapshot)


def needs_at(run: FollowedRun, snapshot: RunSnapshot) -> list[Need]:
    """The needs of a run at a moment. A missing process counts only once the journal is fully read."""
    return [_need(run, snapshot, need) for need in snapshot.needs if run.loaded or need.what != "resume"]


def _need(run: FollowedRun, snapshot: RunSnapshot, need: Needed) -> Need:
    if need.question is not None:
        return _question(need.key, snapshot.questions[need.question])
    if need.approval is not None:
        return Need(need.key, _approval(need.approval), "press A to approve, X to reject, E to edit, C to cancel")
    if need.what == "resume":
        why = safe(run.feed.last_stderr_line(), limit=200) or "no process is running it"
        return Need(need.key, f"interrupted: {why}", "press R to resume")
    if need.what == "budget":
        return Need(need.key, safe(need.why), "press B to raise it")
    return Need(need.key, "paused: no new agents start", "press P to unpause")


def _question(key: str, question: QuestionView) -> Need:
    about = f"{safe(question.about, limit=40)}: " if question.about else ""
    text = f"{question.id} {about}{safe(question.question, limit=300)}"
    failures = [each.failure for each in question.tried if each.failure is not None]
    tried = f"tried {counted(len(failures), 'time')}: {', '.join(failures[-SHOWN:])}" if failures else ""
    waits = question.waiting
    waiting = f"{counted(waits, 'subtask')} wait{'s' * (waits == 1)} for the answer" if waits else ""
    title = safe(question.title, limit=80) if question.title is not None else ""
    return Need(key, text, "Enter: answer", tuple(filter(None, (title, tried, waiting, ends_text(question.ends_in_s)))))


def _approval(approval: Approval) -> str:
    ids = approval.subtasks
    if approval.is_whole_plan:
        return f"the plan needs approval: {counted(len(ids), 'subtask')}"
    reasons = "; ".join(map(safe, approval.objections)) or "needs review"
    more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
    return f"needs approval: {safe(ids[0], limit=40)} ({reasons}){more}"
