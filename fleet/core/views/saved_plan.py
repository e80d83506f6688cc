"""The plan of a run that is over, as one that can be run again: what worked, without what was true of that run only.

A query: pure, over the state.
"""

from dataclasses import dataclass

from fleet.core.ids import SubtaskId
from fleet.core.plan import PLANNER, Plan, Subtask
from fleet.core.state import RunState, SubtaskState


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan to keep, and what was left out of it with the reason."""

    plan: Plan
    left_out: tuple[tuple[SubtaskId, str], ...] = ()


def kept(state: RunState, name: str) -> Kept | str:
    """The plan of what landed, under a new name; or why there is none.

    A subtask that was split stands as its parts, an area as what its planner made of it. What needed something that was
    left out needs what that one needed, so that the order stays.
    """
    if not state.ended:
        return f"{state.run} has not ended; its plan is kept when one knows what of it worked"
    if state.undoing is not None:
        return f"{state.run} was rolled back ({state.undoing}); keep the file that its plan came from, mended"
    worked = [subtask for subtask in state.plan.subtasks if _worked(state, subtask.id)]
    if not worked:
        return f"nothing of {state.run} landed; there is no plan that worked"
    plan = Plan(
        plan_id=name,
        goal=state.plan.goal or state.goal,
        version=1,
        subtasks=tuple(_again(state, subtask) for subtask in worked),
        rollback_plan=state.plan.rollback_plan,
        risk_level=state.plan.risk_level,
        estimated_duration=state.plan.estimated_duration,
    )
    left = ((id_, why) for id_ in state.plan.ids if (why := _why_left_out(state.subtasks[id_])))
    return Kept(plan, tuple(left))


def _worked(state: RunState, id_: SubtaskId) -> bool:
    """Whether it landed and stands for itself: an area's work is what it was broken down into."""
    subtask = state.subtasks[id_]
    return subtask.landed is not None and subtask.attempts[-1].worker != PLANNER


def _again(state: RunState, spec: Subtask) -> Subtask:
    """As it was, but for the time before which it was not to begin, which is over."""
    wanted, area = spec.depends_on, state.subtasks[spec.id].area
    while area is not None:
        wanted, area = (*wanted, *state.spec(area).depends_on), state.subtasks[area].area
    needs = dict.fromkeys(id_ for need in wanted for id_ in _stands_for(state, need))
    needs.pop(spec.id, None)
    return spec.model_copy(update={"depends_on": tuple(needs), "not_before": None})


def _stands_for(state: RunState, id_: SubtaskId) -> list[SubtaskId]:
    """What of the kept plan has to be done where `id_` had to be."""
    found: dict[SubtaskId, None] = {}
    pending, seen = [id_], set[SubtaskId]()
    while pending:
        here = pending.pop(0)
        subtask = state.subtasks.get(here)
        if here in seen or subtask is None:
            continue
        seen.add(here)
        inside = [one.id for one in state.subtasks.values() if one.area == here]
        if _worked(state, here):
            found[here] = None
        else:
            pending += [*subtask.parts, *inside] or state.spec(here).depends_on
    return list(found)


def _why_left_out(subtask: SubtaskState) -> str | None:
    if subtask.landed is not None or subtask.parts:
        return None
    if subtask.dropped is not None:
        return f"dropped: {subtask.dropped}"
    if subtask.skipped:
        return "skipped"
    failure = subtask.failure or (subtask.last.failure if subtask.last is not None else None)
    return f"did not land: {failure.summary}" if failure is not None else "did not land"
