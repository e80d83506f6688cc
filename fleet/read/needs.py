"""What a run needs from a person. Every screen, the report and the metrics ask here; each puts it in its own words."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.policy.budget import over_budget
from fleet.core.policy.requests import (
    awaits_approval,
    is_being_revised,
    is_unreviewed,
    objections,
    waiting_for_approval,
)
from fleet.core.state.state import RunState

NeedKind = Literal["resume", "approve", "answer", "budget", "unpause"]
"""What a person has to do: resume it, approve work, answer a question, raise a budget, end a pause."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Subtasks that wait for approval."""

    subtasks: tuple[SubtaskId, ...]
    """In plan order."""
    is_whole_plan: bool
    """Whether they are all that is planned, and nothing was approved before."""
    objections: tuple[str, ...]
    """Why the rules do not approve the first one."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Something that a person has to do."""

    key: str
    """Unique in its run while it is needed: `q:` with the question, or the name of the action that does it."""
    what: NeedKind
    question: QuestionId | None = None
    """The question to answer."""
    approval: Approval | None = None
    """What waits for approval."""
    why: str = ""
    """Which budget is used up."""


def needed(state: RunState, now: float, *, alive: bool) -> tuple[Needed, ...]:
    """The most urgent first; empty if the run needs no one, or has ended."""
    return () if state.ended else tuple(_needed(state, now, alive=alive))


def _needed(state: RunState, now: float, *, alive: bool) -> Iterator[Needed]:
    if not alive:
        yield Needed("resume", "resume")
    if awaits_approval(state) and not is_being_revised(state):
        yield Needed("approve", "approve", approval=_approval(state))
    for question in state.open_questions():
        yield Needed(f"q:{question.id}", "answer", question=question.id)
    if (spent := over_budget(state, now)) is not None:
        yield Needed("budget", "budget", why=spent)
    if state.paused and not state.rests:
        yield Needed("pause", "unpause")


def _approval(state: RunState) -> Approval:
    ids = waiting_for_approval(state)
    is_whole_plan = is_unreviewed(state) and len(ids) == len(state.plan.subtasks)
    return Approval(ids, is_whole_plan, objections(state, ids[0]))


def kinds_of(needs: Iterable[Needed]) -> tuple[NeedKind, ...]:
    """What they are, each kind once."""
    return tuple(dict.fromkeys(need.what for need in needs))
