"""Flat runs: one worker does the whole epic. What a planner took apart is put together where an operator wants it."""

from fleet.core.plan import PLANNER, Plan, Subtask
from fleet.core.revision import Revision
from fleet.core.validate import LONGEST_GOAL, LONGEST_TITLE

WORD = " (put together into one subtask: the run is flat)"


def flat_revision(revision: Revision, goal: str) -> Revision:
    """The first revision of a run with all its subtasks as one."""
    if len(revision.add) < 2:  # noqa: PLR2004 - one is flat
        return revision
    return revision.model_copy(
        update={"add": (together(revision.add, goal),), "assessment": revision.assessment + WORD}
    )


def flat_plan(plan: Plan) -> Plan:
    """A plan with all its subtasks as one."""
    if len(plan.subtasks) < 2:  # noqa: PLR2004
        return plan
    return plan.model_copy(update={"subtasks": (together(plan.subtasks, plan.goal),)})


def together(subtasks: tuple[Subtask, ...], goal: str) -> Subtask:
    """One subtask for all: every goal in order, every check, every path. Where one may change anything, so may it."""
    first = subtasks[0]
    steps = "\n\n".join(f"{number}. {one.title}\n{one.goal}" for number, one in enumerate(subtasks, start=1))
    bounded = all(one.touches for one in subtasks)
    return first.model_copy(
        update={
            "title": (goal.strip().splitlines() or [first.title])[0][:LONGEST_TITLE],
            "goal": f"Do all of this:\n\n{steps}"[:LONGEST_GOAL],
            "acceptance": tuple(dict.fromkeys(check for one in subtasks for check in one.acceptance)),
            "touches": tuple(dict.fromkeys(path for one in subtasks for path in one.touches)) if bounded else (),
            "context": tuple(dict.fromkeys(path for one in subtasks for path in one.context)),
            "depends_on": (),
            "worker": next(
                (one.worker for one in subtasks if one.worker != PLANNER), Subtask.model_fields["worker"].default
            ),
            "risk": max((one.risk for one in subtasks), key=("low", "medium", "high").index),
            "estimate": first.estimate.model_copy(update={"minutes": None, "lines": None, "dollars": None}),
        }
    )


def is_flat(plan: Plan) -> bool:
    return len(plan.subtasks) == 1
