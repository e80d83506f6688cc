"""Rolling back: when a plan that failed is undone by its rollback plan, and how a run that did so ends.

A part of policy, as `decide.py` is (docs/decisions, "A plan that failed after it changed something is rolled back").
"""

from fleet.core import facts as f
from fleet.core.ids import SubtaskId
from fleet.core.plan import Plan
from fleet.core.state import Attempt, RunState


def missing(plan: Plan, rollback: Plan | None) -> tuple[str, ...]:
    """A word about a rollback plan that is named and was not found."""
    if not plan.rollback_plan or rollback is not None:
        return ()
    return (f"no rollback plan {plan.rollback_plan!r} was found: a failure will not be undone",)


def changed_something(attempt: Attempt) -> bool:
    """Whether an attempt may have changed anything, here or outside. Only its own report can say that it did not."""
    return attempt.worked and (attempt.report is None or attempt.report.result.get("changed") is not False)


def is_due(state: RunState) -> bool:
    """Whether a failure now means to roll back: there is a plan for it, and something to undo."""
    if state.rollback is None or state.undoing is not None:
        return False
    return any(changed_something(attempt) for subtask in state.subtasks.values() for attempt in subtask.attempts)


def instead(state: RunState, id_: SubtaskId, failure: f.Failure, decision: f.Fact) -> f.Fact:
    """What a failure leads to. Where trying again is over, a rollback plan says already what is to be done.

    Who wrote `failure_action: ask` or `skip` wanted that instead.
    """
    if is_undone(state, id_):  # what was on its way to landing, and did not arrive
        number = len(state.subtasks[id_].attempts)
        return f.RemedyChosen(at=decision.at, subtask=id_, number=number, remedy="skip")
    gives_up = isinstance(decision, f.RunEnded | f.QuestionAsked) or (
        isinstance(decision, f.RemedyChosen) and decision.remedy == "planner"
    )
    if not gives_up or state.spec(id_).failure_action == "ask" or not is_due(state):
        return decision
    return f.RollbackStarted(at=decision.at, why=f"{id_} failed: {failure.summary}")


def undoes(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask is a step of the rollback plan."""
    return state.rollback is not None and id_ in state.rollback.ids


def is_undone(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask is of the plan that was rolled back: to try it again would be a new deployment."""
    return state.undoing is not None and not undoes(state, id_)


def told(state: RunState, decision: f.Fact) -> f.Fact:
    """The end of a run that was rolled back: not landed, whatever became of the rollback, and what did become of it."""
    if state.undoing is None or state.rollback is None or not isinstance(decision, f.RunEnded):
        return decision
    name = state.rollback.plan_id
    left = [id_ for id_ in state.rollback.ids if state.subtasks[id_].landed is None]
    done = f"the rollback {name} did not finish, see {', '.join(left)}: {decision.why}" if left else f"undone by {name}"
    return decision.model_copy(update={"ending": "aborted", "why": f"{state.undoing}; {done}"})
