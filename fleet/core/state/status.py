"""Derives the status of subtasks, the phase of attempts, and the progress of a run and its areas.

All views use these definitions. Statuses have the names of the model protocol, and `split`.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import PLANNER
from fleet.core.plans.revision import SubtaskStatuses
from fleet.core.state.state import Planning, Question, RunState
from fleet.core.state.subtasks import Attempt, Mark, Set, SubtaskState

OpenStatus = Literal["waiting", "ready", "running", "verifying", "landing", "failed", "blocked", "escalated"]
Status = Literal[OpenStatus, "merged", "dropped", "split"]
Phase = Literal["planning", "starting", "working", "checking", "landing"]
OVER: frozenset[Status] = frozenset({"merged", "dropped", "split"})
Area = SubtaskId | None
"""Area of a planner. None: the run's own planner."""


def status_of(state: RunState, id_: SubtaskId, now: float) -> Status:
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
    """Whether a subtask's area is active and its dependencies have landed or were skipped on purpose."""
    if waits_for_area(state, state.subtasks[id_]):
        return False
    needs = (state.subtasks.get(need) for need in state.spec(id_).depends_on)
    return all(need is not None and (need.landed is not None or need.skipped) for need in needs)


def starts_at(state: RunState, id_: SubtaskId) -> float:
    """The earliest time a subtask may start, by the plan and by its backoff."""
    planned = state.spec(id_).not_before
    return max(state.subtasks[id_].not_before, planned.timestamp() if planned is not None else 0.0)


def statuses(state: RunState, now: float) -> dict[SubtaskId, Status]:
    """The status of every subtask, in plan order."""
    return {id_: status_of(state, id_, now) for id_ in state.plan.ids}


def landing_order(state: RunState) -> tuple[SubtaskId, ...]:
    """The order of the plan, with each subtask after all that it needs, and the parts of a split one in its place."""
    order, opened = dict[SubtaskId, None](), set[SubtaskId]()
    pending = list(reversed(state.plan.ids))
    while pending:
        id_ = pending[-1]
        before = () if id_ in opened else (*state.spec(id_).depends_on, *state.subtasks[id_].parts)
        opened.add(id_)
        if waiting := [each for each in before if each not in opened and each in state.specs]:
            pending += reversed(waiting)
        else:
            order.setdefault(pending.pop())
    return tuple(order)


def is_refused(state: RunState) -> bool:
    """Whether the run ended before anything was done or paid for."""
    return state.ending == "failed" and state.spent.calls == 0 and state.commits == 0


def ready(state: RunState, now: float) -> Set:
    """The subtasks that are ready, without a look at any other."""
    subtasks = state.subtasks
    startable = subtasks.startable
    early = [id_ for id_ in subtasks.first(startable & subtasks.timed) if starts_at(state, id_) > now]
    return startable & ~subtasks.set_of(early)


def undecided_failures(state: RunState) -> Set:
    """The subtasks that are failed or blocked."""
    subtasks = state.subtasks
    busy = subtasks.marked(Mark.UNDERWAY) | subtasks.marked(Mark.ASKED)
    return subtasks.open & subtasks.marked(Mark.FAILED) & ~busy


def status_counts(state: RunState, now: float) -> dict[Status, int]:
    """Without a look at those that landed."""
    subtasks = state.subtasks
    merged = subtasks.marked(Mark.CLOSED) & ~subtasks.marked(Mark.GONE)
    counts = Counter(status_of(state, id_, now) for id_ in subtasks.first(subtasks.all & ~merged))
    counts["merged"] += merged.bit_count()
    return {status: count for status, count in counts.items() if count}


def _is_aside(state: RunState, subtask: SubtaskState) -> bool:
    """Return whether an internal error stopped the subtask. A planner can't fix that."""
    if subtask.question is not None and state.questions[subtask.question].aside:  # in older journals without a failure
        return True
    return subtask.failure is not None and subtask.failure.kind == "internal"


def split_or_dropped(state: RunState) -> frozenset[SubtaskId]:
    """The subtasks that no other subtask may newly depend on."""
    gone = state.subtasks.first(state.subtasks.marked(Mark.GONE))
    return frozenset(id_ for id_ in gone if state.subtasks[id_].parts or state.subtasks[id_].dropped is not None)


def for_revision(state: RunState, area: Area = None) -> SubtaskStatuses:
    """The subtasks that a revision of the run's planner, or of an area's planner, may change now."""
    subtasks = state.subtasks
    open_, underway = subtasks.open, subtasks.marked(Mark.UNDERWAY)
    stuck = open_ & ~underway & (subtasks.marked(Mark.ASKED) | subtasks.marked(Mark.FAILED))
    return SubtaskStatuses(
        open=frozenset(subtasks.first(open_)),
        busy=frozenset(subtasks.first(open_ & underway)),
        failed=frozenset(id_ for id_ in subtasks.first(stuck) if not _is_aside(state, subtasks[id_])),
        split_or_dropped=split_or_dropped(state),
        depth={subtask.id: subtask.depth for subtask in subtasks.values() if subtask.depth},
        max_depth=state.policy.max_depth,
        mine=seen_by(state, area),
        bounds=state.spec(area).touches if area is not None else (),
        may_delegate=area_depth(state, area) < state.policy.area_depth,
    )


# ---- how far a run is -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` subtasks."""

    done: int
    """Subtasks that landed, with or without a commit."""
    total: int
    """Subtasks that are to land: a split one counts as its parts, an area as its subtasks, a dropped one not at all."""

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


def progress(state: RunState) -> Progress:
    subtasks = state.subtasks
    to_land = subtasks.all & ~(subtasks.marked(Mark.GONE) | subtasks.areas)
    return Progress(done=(to_land & subtasks.marked(Mark.DONE)).bit_count(), total=to_land.bit_count())


def phase(attempt: Attempt) -> Phase:
    """Return the phase of a running attempt. An area plans until all its subtasks have landed."""
    if attempt.commit is not None:
        return "landing" if attempt.verified else "checking"
    if attempt.worker == PLANNER:
        return "planning"
    return "working" if attempt.working else "starting"


def agent_phases(state: RunState) -> Iterator[Phase]:
    """Return the phase of each agent: the planner during a call, and every running attempt."""
    if state.planning.open is not None:
        yield "planning"
    for _, attempt in state.underway():
        yield phase(attempt)


# ---- areas -----------------------------------------------------------------------------------------------------------
# Subtasks with a separate planner, state and share of the budget.
#
# An area is a subtask whose worker is `planner`. While an attempt at it is running, its planner is in charge of the
# subtasks it created. Otherwise the planner in charge of the area is.


def is_active(state: RunState, area: SubtaskId) -> bool:
    """Return whether the area's planner is in charge: its attempt is running and has not finished."""
    current = state.subtasks[area].current
    return current is not None and current.worker == PLANNER and current.commit is None


def active_areas(state: RunState) -> tuple[SubtaskId, ...]:
    return tuple(state.subtasks.in_plan_order(state.subtasks.marked(Mark.PLANNING)))


def planning_of(state: RunState, area: Area) -> Planning:
    return state.planning if area is None else state.areas[area]


def conversations(state: RunState) -> tuple[Area, ...]:
    """The run's own planner, and the planners of active areas."""
    return (None, *active_areas(state))


def in_charge(state: RunState, id_: SubtaskId) -> Area:
    """The area whose planner decides about a subtask."""
    area = state.subtasks[id_].area
    while area is not None and not is_active(state, area):
        area = state.subtasks[area].area
    return area


def seen_by(state: RunState, area: Area) -> frozenset[SubtaskId]:
    """The subtasks that a planner sees and may change: its own, and the open ones of areas that failed."""
    return frozenset(state.subtasks.ids(seen(state, area)))


def seen(state: RunState, area: Area) -> Set:
    """Return the subtasks that a planner sees, as a set."""
    subtasks = state.subtasks
    if not state.areas:
        return subtasks.all
    if area is not None and not is_active(state, area):
        return 0
    own = subtasks.members(area)
    orphans = subtasks.open & ~(subtasks.members(None) | subtasks.in_active_areas | own)
    return own | subtasks.set_of([id_ for id_ in subtasks.first(orphans) if in_charge(state, id_) == area])


def questions_in(state: RunState, area: SubtaskId) -> list[Question]:
    """The open questions about an area's subtasks or from its planner."""
    seen = seen_by(state, area)
    return [q for q in state.open_questions() if q.area == area or q.about in seen]


def inside(state: RunState, area: SubtaskId) -> Set:
    """The subtasks of an area and of the areas in it."""
    subtasks = state.subtasks
    found, areas = 0, [area]
    while areas:
        members = subtasks.members(areas.pop())
        found |= members
        areas += [nested for nested in state.areas if members >> subtasks.plan.bits[nested] & 1]
    return found


def area_depth(state: RunState, area: Area) -> int:
    """Return the nesting depth of a planner's area, from 1. The run's own planner has 0."""
    levels = 0
    while area is not None:
        levels, area = levels + 1, state.subtasks[area].area
    return levels


def waits_for_area(state: RunState, subtask: SubtaskState) -> bool:
    """Whether a subtask may not start because its area is not active, so that no planner would be in charge of it."""
    area = subtask.area
    return area is not None and not is_active(state, area) and not state.subtasks[area].closed


def area_spend(state: RunState, area: SubtaskId) -> float:
    """Dollars that the current attempt at an area has cost: its planner's calls, and the attempts at its subtasks."""
    current = state.subtasks[area].current
    return current.spend.priced_dollars + state.areas[area].spent if current is not None else 0.0


def allowance(state: RunState, area: SubtaskId) -> float | None:
    """Return the budget of an area that starts now: its estimate, or an even share of the remaining budget."""
    estimated, outer = state.spec(area).estimate.dollars, state.subtasks[area].area
    around = state.subtasks[outer].current if outer is not None else None
    if outer is not None and around is not None and around.allowance is not None:
        rest, siblings = around.allowance - area_spend(state, outer), state.subtasks.members(outer)
    elif state.policy.budget_dollars is not None:
        rest, siblings = state.policy.budget_dollars - state.spent.priced_dollars, state.subtasks.all
    else:
        return estimated
    if estimated is not None:
        return min(estimated, max(0.0, rest))
    open_areas = (siblings & state.subtasks.areas & state.subtasks.open).bit_count()
    return max(0.0, rest) / (open_areas + 1)
