"""The plan of an ended run as one that can be run again: what landed, without what was true of that run only."""

from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import SubtaskState


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan to save, and the subtasks that it leaves out, each with the reason."""

    plan: Plan
    left_out: tuple[tuple[SubtaskId, str], ...] = ()


def saved_plan(state: RunState, name: str) -> SavedPlan | str:
    """The plan of what landed, under a new name, or why there is none.

    A split subtask is replaced by its parts, an area by its subtasks. A subtask that depended on one that is left out
    depends on that one's dependencies instead, so that the order stays.
    """
    if not state.ended:
        return f"{state.run} has not ended; save its plan when it has"
    if state.undoing is not None:
        return f"{state.run} was rolled back ({state.undoing}); fix the plan file it came from and save that"
    landed = [spec for spec in state.plan.subtasks if _landed_as_work(state.subtasks[spec.id])]
    if not landed:
        return f"nothing of {state.run} landed, so there is no plan to save"
    plan = Plan(
        plan_id=name,
        goal=state.plan.goal or state.goal,
        version=1,
        subtasks=tuple(_without_history(state, spec) for spec in landed),
        rollback_plan=state.plan.rollback_plan,
        risk_level=state.plan.risk_level,
        estimated_duration=state.plan.estimated_duration,
    )
    left_out = ((id_, why) for id_ in state.plan.ids if (why := _why_left_out(state.subtasks[id_])))
    return SavedPlan(plan, tuple(left_out))


def _landed_as_work(subtask: SubtaskState) -> bool:
    """Whether a subtask landed and is not an area, whose subtasks are saved instead."""
    return subtask.landed is not None and subtask.attempts[-1].worker != PLANNER


def _without_history(state: RunState, spec: Subtask) -> Subtask:
    """The subtask without its start time, and with dependencies on saved subtasks only."""
    needs, area = spec.depends_on, state.subtasks[spec.id].area
    while area is not None:
        needs, area = (*needs, *state.spec(area).depends_on), state.subtasks[area].area
    saved = dict.fromkeys(id_ for need in needs for id_ in _replacements(state, need))
    saved.pop(spec.id, None)
    return spec.model_copy(update={"depends_on": tuple(saved), "not_before": None})


def _replacements(state: RunState, id_: SubtaskId) -> list[SubtaskId]:
    """The saved subtasks to depend on instead of `id_`."""
    saved: dict[SubtaskId, None] = {}
    pending, seen = [id_], set[SubtaskId]()
    while pending:
        current = pending.pop(0)
        subtask = state.subtasks.get(current)
        if current in seen or subtask is None:
            continue
        seen.add(current)
        if _landed_as_work(subtask):
            saved[current] = None
        else:
            in_area = [inner.id for inner in state.subtasks.values() if inner.area == current]
            pending += [*subtask.parts, *in_area] or state.spec(current).depends_on
    return list(saved)


def _why_left_out(subtask: SubtaskState) -> str | None:
    if subtask.landed is not None or subtask.parts:
        return None
    if subtask.dropped is not None:
        return f"dropped: {subtask.dropped}"
    if subtask.skipped:
        return "skipped"
    failure = subtask.failure or (subtask.last.failure if subtask.last is not None else None)
    return f"did not land: {failure.summary}" if failure is not None else "did not land"
