"""All subtasks at one look: what each of them is doing, in as many cells as there is room for.

A cell stands for as many subtasks as are needed for that, and shows the state that needs the most attention. Sets make
this cost what is in sight, not the size of the plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.run_follower import FollowedRun
from dashboards.text.formats import counted
from dashboards.text.review_text import ends_text
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
from fleet.core.state.status import phase
from fleet.core.state.subtasks import Mark, Set
from fleet.read.question_view import ends_in, waiting_for
from fleet.read.run_view import RunStatus

State = Literal[
    "asks", "failed", "working", "planning", "checking", "landing", "starting", "ready", "waiting", "landed", "gone"
]
STATES: tuple[State, ...] = (
    *("asks", "failed", "working", "planning", "checking", "landing"),
    *("starting", "ready", "waiting", "landed", "gone"),
)
"""The most urgent first: a cell of several subtasks shows this one. `gone` is split or dropped."""


@dataclass(frozen=True, slots=True)
class SubtaskMap:
    """The cells in the order in which subtasks should start, and how many subtasks are in each state."""

    cells: Sequence[State]
    counts: dict[State, int]
    each: int
    """How many subtasks one cell stands for."""


def subtask_map(state: RunState, room: int, *, alive: bool = True) -> SubtaskMap:
    """A map of at most `room` cells. Where no process runs it, nothing is under way."""
    sets = state_sets(state, alive=alive)
    total = len(state.subtasks)
    each = max(1, -(-total // max(1, room)))
    mask = (1 << each) - 1
    present = [(name, sets[name]) for name in STATES if sets[name]]
    cells: list[State] = [
        next((name for name, chosen in present if (chosen >> first) & mask), "gone") for first in range(0, total, each)
    ]
    return SubtaskMap(cells, {name: chosen.bit_count() for name, chosen in present}, each)


def state_sets(state: RunState, *, alive: bool) -> dict[State, Set]:
    """The subtasks in each state. Only those under way are looked at one by one."""
    subtasks = state.subtasks
    sets: dict[State, Set] = dict.fromkeys(STATES, 0)
    gone = subtasks.marked(Mark.GONE)
    underway = subtasks.marked(Mark.UNDERWAY)
    sets["gone"] = gone
    sets["landed"] = subtasks.marked(Mark.CLOSED) & ~gone
    rest = subtasks.open
    if alive:
        for subtask, attempt in state.underway():
            sets[phase(attempt)] |= subtasks.set_of((subtask.id,))
        rest &= ~underway
    sets["asks"] = rest & subtasks.marked(Mark.ASKED)
    sets["failed"] = rest & subtasks.marked(Mark.FAILED) & ~sets["asks"]
    rest &= ~(sets["asks"] | sets["failed"])
    sets["ready"] = rest & (subtasks.startable | underway)
    sets["waiting"] = rest & ~sets["ready"]
    return sets


# ---- status marks ----------------------------------------------------------------------------------------------------
# Marks and short texts: each state has a sign and a word, so that no meaning depends on colour alone.


Span = tuple[str, str]
"""Text, and its tone: a name such as `good` or `dim`, never a colour."""

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
"""The sign of a run, by its status."""
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
    # cells of the map of subtasks, where they have other names
    "asks": ("?", "attention"),
    "gone": ("-", "dim"),
    "failed": ("✘", "bad"),
} | RUN_MARKS
"""The sign and the tone of the states of subtasks, attempts and runs. Everything else is a failure."""


def marked(state: str) -> Span:
    """A state with its sign."""
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
    """A model without its maker's prefix."""
    return model.removeprefix("claude-")


# ---- needs -----------------------------------------------------------------------------------------------------------
# What a run needs from a person, the most urgent first. The header, the overview and the page of runs show it.


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
