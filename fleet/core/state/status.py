"""Where a subtask stands, derived from causes. The names are those of the model protocol, and `split` for people."""

from collections import Counter
from typing import Literal

from fleet.core.areas import Area, depth, seen_by, waits_for_area
from fleet.core.ids import SubtaskId
from fleet.core.revision import Standings
from fleet.core.state import RunState, SubtaskState

Standing = Literal[
    "waiting",
    "ready",
    "running",
    "verifying",
    "landing",
    "merged",
    "failed",
    "blocked",
    "dropped",
    "escalated",
    "split",
]
BUSY: frozenset[Standing] = frozenset({"running", "verifying", "landing"})
OVER: frozenset[Standing] = frozenset({"merged", "dropped", "split"})


def standing(state: RunState, id_: SubtaskId, now: float) -> Standing:
    subtask = state.subtasks[id_]
    if subtask.landed is not None:
        return "merged"
    if subtask.parts:
        return "split"
    if subtask.dropped is not None or subtask.skipped:
        return "dropped"
    if (attempt := subtask.current) is not None:
        return "running" if attempt.commit is None else "landing" if attempt.verified else "verifying"
    if subtask.question is not None:
        return "escalated"
    if subtask.failure is not None:
        return "blocked" if _was_blocked(subtask) else "failed"
    if not satisfied(state, id_) or starts_at(state, id_) > now:
        return "waiting"
    return "ready"


def _was_blocked(subtask: SubtaskState) -> bool:
    last = subtask.last
    return last is not None and last.report is not None and last.report.status == "blocked"


def satisfied(state: RunState, id_: SubtaskId) -> bool:
    """Whether everything it depends on has landed, or was skipped on purpose, and its area is being worked on."""
    if waits_for_area(state, state.subtasks[id_]):
        return False
    needs = (state.subtasks.get(need) for need in state.spec(id_).depends_on)
    return all(need is not None and (need.landed is not None or need.skipped) for need in needs)


def starts_at(state: RunState, id_: SubtaskId) -> float:
    """The earliest time it may start: what the plan says, or the end of a backoff."""
    planned = state.spec(id_).not_before
    return max(state.subtasks[id_].not_before, planned.timestamp() if planned is not None else 0.0)


def standings(state: RunState, now: float) -> dict[SubtaskId, Standing]:
    """Of every subtask, in plan order."""
    return {id_: standing(state, id_, now) for id_ in state.plan.ids}


def counts(state: RunState, now: float) -> dict[Standing, int]:
    return dict(Counter(standings(state, now).values()))


def gone(state: RunState) -> frozenset[SubtaskId]:
    """What was split or dropped: nothing new may wait for it."""
    return frozenset(id_ for id_, subtask in state.subtasks.items() if subtask.parts or subtask.dropped is not None)


def for_revision(state: RunState, now: float, area: Area = None) -> Standings:
    """What a revision of the run's planner, or of an area's, may touch now."""
    stand = standings(state, now)
    return Standings(
        open=frozenset(id_ for id_, where in stand.items() if where not in OVER),
        busy=frozenset(id_ for id_, where in stand.items() if where in BUSY),
        failed=frozenset(id_ for id_, where in stand.items() if where in {"failed", "blocked", "escalated"}),
        gone=gone(state),
        depth={id_: subtask.depth for id_, subtask in state.subtasks.items()},
        max_depth=state.policy.max_depth,
        mine=seen_by(state, area),
        bounds=state.spec(area).touches if area is not None else (),
        may_delegate=depth(state, area) < state.policy.area_depth,
    )
