"""History where git lost what the journal names: what of it stays true. A part of `evolve`, and as pure.

Facts stay as they were written; what they said of commits that are gone is taken back from the state.
"""

from dataclasses import replace

from fleet.core import facts as f
from fleet.core import queue
from fleet.core.plan import PLANNER
from fleet.core.state import Attempt, RunState, SubtaskState


def forgotten(state: RunState, fact: f.WorkLost) -> RunState:
    """The state without the commits that are gone. What has to be done anew is under way again, for it to fail."""
    gone = frozenset(fact.commits)
    back = {*fact.again, *fact.anew}
    subtasks = {
        id_: _forgetful(_reopened(subtask) if id_ in back else subtask, gone) for id_, subtask in state.subtasks.items()
    }
    landed = sum(state.subtasks[id_].landed is not None for id_ in back)
    return replace(
        state,
        tip=fact.tip,
        commits=state.commits - landed,
        published=None if fact.unpublished or state.published in gone else state.published,
        subtasks=subtasks,
        landing=queue.begun_anew(state.landing, gone=fact.anew, back=fact.again) if back else state.landing,
    )


def merged(subtask: SubtaskState) -> bool:
    """Whether it stands on the integration branch as a commit of its own."""
    last = subtask.last
    return subtask.landed is not None and last is not None and last.worker != PLANNER and not last.unchanged


def _reopened(subtask: SubtaskState) -> SubtaskState:
    last = replace(subtask.attempts[-1], landed=None, tested=False, ended_at=None)
    return replace(subtask, landed=None, attempts=(*subtask.attempts[:-1], last))


def _forgetful(subtask: SubtaskState, gone: frozenset[str]) -> SubtaskState:
    """Nobody can look at these any more: not the next attempt, and no person."""

    def without(attempt: Attempt) -> Attempt:
        if attempt.commit not in gone or attempt.worker == PLANNER:
            return attempt
        return replace(attempt, commit=None, kept=False)

    if not any(attempt.commit in gone for attempt in subtask.attempts):
        return subtask
    return replace(subtask, attempts=tuple(map(without, subtask.attempts)))
