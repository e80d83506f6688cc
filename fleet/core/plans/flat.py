"""Flat runs: one worker does the whole epic. All subtasks of a planner's first revision or of a plan become one."""

from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.plans.revision import Revision
from fleet.core.plans.validate import LONGEST_GOAL, LONGEST_TITLE

NOTE = " (merged into one subtask: the run is flat)"


def is_flat(plan: Plan) -> bool:
    return len(plan.subtasks) == 1


def flat_revision(revision: Revision, goal: str) -> Revision:
    """The first revision of a run with all its subtasks merged into one."""
    if len(revision.add) < 2:  # noqa: PLR2004 - a single subtask is flat already
        return revision
    merged = merge_subtasks(revision.add, goal)
    return revision.model_copy(update={"add": (merged,), "assessment": revision.assessment + NOTE})


def flat_plan(plan: Plan) -> Plan:
    """The plan with all its subtasks merged into one."""
    if len(plan.subtasks) < 2:  # noqa: PLR2004
        return plan
    return plan.model_copy(update={"subtasks": (merge_subtasks(plan.subtasks, plan.goal),)})


def merge_subtasks(subtasks: tuple[Subtask, ...], goal: str) -> Subtask:
    """One subtask with every goal in order, every check and every path. If one may change any file, so may it."""
    first = subtasks[0]
    steps = "\n\n".join(f"{number}. {step.title}\n{step.goal}" for number, step in enumerate(subtasks, start=1))
    is_bounded = all(subtask.touches for subtask in subtasks)
    workers = (subtask.worker for subtask in subtasks if subtask.worker != PLANNER)
    return first.model_copy(
        update={
            "title": (goal.strip().splitlines() or [first.title])[0][:LONGEST_TITLE],
            "goal": f"Do all of this:\n\n{steps}"[:LONGEST_GOAL],
            "acceptance": tuple(dict.fromkeys(check for subtask in subtasks for check in subtask.acceptance)),
            "touches": tuple(dict.fromkeys(p for subtask in subtasks for p in subtask.touches)) if is_bounded else (),
            "context": tuple(dict.fromkeys(path for subtask in subtasks for path in subtask.context)),
            "depends_on": (),
            "worker": next(workers, Subtask.model_fields["worker"].default),
            "risk": max((subtask.risk for subtask in subtasks), key=("low", "medium", "high").index),
            "estimate": first.estimate.model_copy(update={"minutes": None, "lines": None, "dollars": None}),
        }
    )
