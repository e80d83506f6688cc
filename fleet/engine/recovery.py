"""What happens before a run is resumed: the commits that the journal names are compared with those that git still has.

Knows no git: `Recovery` says which commits exist. This module decides what that means for subtasks.
"""

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import PLANNER
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt
from fleet.ports.worktrees import NamedCommits, RecoveredCommits, Recovery

UNWRITTEN_S = 600.0  # objects written less than this long before the last fact may not have reached the disk


async def reconcile(state: RunState, worktrees: Recovery, now: float) -> list[f.Fact]:
    """What an engine has to record before it may resume the run. A run that never started has no commits yet."""
    if state.epoch == 0:
        return []
    lost = loss(state, await worktrees.recover(named(state)), now)
    return [lost] if lost is not None else []


def named(state: RunState) -> NamedCommits:
    """The commits that the state of a run names."""
    finished, unfinished = dict[tuple[SubtaskId, int], str](), dict[tuple[SubtaskId, int], str]()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            if attempt.commit is not None and attempt.worker != PLANNER and not attempt.unchanged:
                (unfinished if attempt.kept else finished)[subtask.id, attempt.number] = attempt.commit
    tested = [each for each in state.subtasks.values() if each.has_own_commit and each.attempts[-1].tested]
    current = [(subtask.id, subtask.current.number) for subtask in state.subtasks.values() if subtask.current]
    was_killed = state.engine_since is not None
    return NamedCommits(
        run=state.run,
        base=state.base,
        tip=state.tip,
        attempts=finished,
        kept=unfinished,
        landed=tuple(subtask.landed for subtask in tested if subtask.landed is not None),
        underway=frozenset(current),
        published=state.published,
        written_since=state.last_at - UNWRITTEN_S if was_killed else None,
    )


def loss(state: RunState, recovered: RecoveredCommits, now: float) -> f.WorkLost | None:
    """The work that must be repeated; None if nothing is lost."""
    land_again, do_again = list[SubtaskId](), list[SubtaskId]()
    for subtask in state.subtasks.values():
        last = subtask.last
        if last is None or last.worker == PLANNER or last.unchanged:
            continue
        unlanded = subtask.has_own_commit and recovered.tip != state.tip and subtask.landed not in recovered.below
        if not unlanded and (subtask.landed is not None or subtask.current is None):
            continue  # its commit is intact, or nothing more is expected of it
        if last.commit in recovered.gone or (not unlanded and _lost_its_base(state, last, recovered)):
            do_again.append(subtask.id)
        elif unlanded:
            land_again.append(subtask.id)
    if not (recovered.gone or land_again or do_again) and recovered.shown:
        return None
    landed = [id_ for batch in state.landing.tested for id_ in batch.landed]  # what others need comes before them
    order = {id_: place for place, id_ in enumerate(landed)}
    return f.WorkLost(
        at=now,
        tip=recovered.tip,
        commits=tuple(sorted(recovered.gone)),
        again=tuple(sorted(land_again, key=lambda id_: order.get(id_, len(order)))),
        anew=tuple(do_again),
        unpublished=not recovered.shown,
    )


def _lost_its_base(state: RunState, attempt: Attempt, recovered: RecoveredCommits) -> bool:
    """Whether an unfinished attempt started from a tip that is no longer on the branch."""
    moved_back = recovered.tip != state.tip
    return attempt.commit is None and moved_back and attempt.base not in {state.base, *recovered.below}
