"""Rolling back: when a plan that failed is undone by its rollback plan, and how a run that did so ends.

See docs/decisions, "A plan that failed after it changed something is rolled back".
"""

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Plan
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import Attempt


def missing_rollback(plan: Plan, rollback: Plan | None) -> tuple[str, ...]:
    """A warning if the rollback plan that a plan names was not found."""
    if not plan.rollback_plan or rollback is not None:
        return ()
    return (f"no rollback plan {plan.rollback_plan!r} was found: a failure will not be undone",)


def is_rollback_step(state: RunState, id_: SubtaskId) -> bool:
    return state.rollback is not None and id_ in state.rollback.ids


def is_undone(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask belongs to a plan that was rolled back: trying it again would be a new deployment."""
    return state.undoing is not None and not is_rollback_step(state, id_)


def or_rollback(state: RunState, id_: SubtaskId, failure: f.Failure, decision: f.Fact) -> f.Fact:
    """The decision about a failure, or the rollback instead of giving up.

    A `failure_action` of `ask` or `skip` takes precedence over the rollback.
    """
    if is_undone(state, id_):  # it was about to land when the rollback started
        number = len(state.subtasks[id_].attempts)
        return f.RemedyChosen(at=decision.at, subtask=id_, number=number, remedy="skip")
    gives_up = isinstance(decision, f.RunEnded | f.QuestionAsked) or (
        isinstance(decision, f.RemedyChosen) and decision.remedy == "planner"
    )
    if not gives_up or state.spec(id_).failure_action == "ask" or not _is_due(state):
        return decision
    return f.RollbackStarted(at=decision.at, why=f"{id_} failed: {failure.summary}")


def _is_due(state: RunState) -> bool:
    """Whether a failure now leads to a rollback: there is a plan for it, and something to undo."""
    if state.rollback is None or state.undoing is not None:
        return False
    return any(_may_have_changed(attempt) for subtask in state.subtasks.values() for attempt in subtask.attempts)


def _may_have_changed(attempt: Attempt) -> bool:
    """Whether an attempt may have changed anything, here or elsewhere. Only its own report can deny it."""
    return attempt.worked and (attempt.report is None or attempt.report.result.get("changed") is not False)


def rollback_ending(state: RunState, decision: f.Fact) -> f.Fact:
    """The end of a run, which is `aborted` if it was rolled back, with the result of the rollback."""
    if state.undoing is None or state.rollback is None or not isinstance(decision, f.RunEnded):
        return decision
    name = state.rollback.plan_id
    unfinished = [id_ for id_ in state.rollback.ids if state.subtasks[id_].landed is None]
    result = f"undone by {name}"
    if unfinished:
        result = f"the rollback {name} did not finish, see {', '.join(unfinished)}: {decision.why}"
    return decision.model_copy(update={"ending": "aborted", "why": f"{state.undoing}; {result}"})
