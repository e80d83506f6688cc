"""Requests: what people ask of a run through its inbox, and whether that makes sense now.

A request is the fact it would become. `accept` returns it, or the reason why not.
"""

from typing import Annotated

from pydantic import Field, TypeAdapter

from fleet.core import facts as f
from fleet.core.approval import awaited, waiting
from fleet.core.nearest import did_you_mean
from fleet.core.plan import Plan
from fleet.core.revision import revise_plan
from fleet.core.rollback import is_undone
from fleet.core.standing import for_revision, standing
from fleet.core.state import RunState
from fleet.core.validate import Known

Request = (
    f.PlanApproved
    | f.PlanRejected
    | f.PlanRevised
    | f.Paused
    | f.Unpaused
    | f.DrainRequested
    | f.CancelRequested
    | f.LimitsChanged
    | f.RetryRequested
    | f.QuestionAnswered
)
REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def accept(state: RunState, request: Request) -> str | None:
    """None if `request` may happen now, or why it may not."""
    match request:
        case f.QuestionAnswered():
            return _answer_problem(state, request)
        case f.RetryRequested():
            return _retry_problem(state, request)
        case (
            f.PlanApproved()
            | f.PlanRejected()
            | f.PlanRevised()
            | f.Paused()
            | f.DrainRequested()
            | f.CancelRequested()
        ) if state.ended and not _answers_late(state, request):
            return f"{state.run} has ended already ({state.ending})"
        case f.PlanApproved() | f.PlanRejected():
            return _review_problem(state, request)
        case f.PlanRevised():
            return _revision_problem(state, request)
        case f.LimitsChanged():
            return _limits_problem(request)
        case _:
            return None


def _answers_late(state: RunState, request: Request) -> bool:
    """A word about a plan that nobody gave in time: it is kept for when the run goes on."""
    return isinstance(request, f.PlanApproved | f.PlanRejected | f.PlanRevised) and bool(awaited(state))


def _review_problem(state: RunState, request: f.PlanApproved | f.PlanRejected) -> str | None:
    """A word about a plan is about the version that was looked at, and of a part of it only about what waits."""
    verb = "approve" if isinstance(request, f.PlanApproved) else "reject"
    if not state.plan.subtasks:
        return f"there is no plan yet to {verb}"
    if request.version != state.plan.version:
        return f"the plan is at version {state.plan.version} now, not {request.version}; look at it again"
    waits = waiting(state)
    for id_ in request.subtasks or ():
        if id_ not in waits:
            near = did_you_mean(id_, waits) or f"; there wait {', '.join(waits) or 'none'}"
            return f"{id_} does not wait for approval{near}"
    if isinstance(request, f.PlanApproved) and (request.automatic or request.subtasks == ()):
        return "that approves nothing; name what may begin"
    if not waits:
        return "nothing waits for approval; a subtask that may begin already is dropped by editing the plan"
    if isinstance(request, f.PlanRejected) and not request.reason.strip():
        return "say why: the planner revises by the reason"
    return None


def _revision_problem(state: RunState, request: f.PlanRevised) -> str | None:
    """A person may change the plan as the planner may; what a planner alone says is not for people."""
    revision = request.revision
    if request.call is not None or revision.finished or revision.ask:
        return "a person changes subtasks; questions and the end are the planner's"
    known = Known(max_subtasks=state.policy.max_subtasks)
    after = revise_plan(state.plan, revision, for_revision(state, request.at), known)
    return None if isinstance(after, Plan) else "the plan can't be changed so: " + "; ".join(map(str, after))


def _answer_problem(state: RunState, request: f.QuestionAnswered) -> str | None:
    question = state.questions.get(request.question)
    if question is None:
        return f"there is no question {request.question!r}{did_you_mean(request.question, state.questions)}"
    if question.answer is not None:
        return f"{question.id} was answered already: {question.answer}"
    return None if request.answer.strip() else "the answer is empty"


def _retry_problem(state: RunState, request: f.RetryRequested) -> str | None:
    if request.subtask not in state.subtasks:
        return f"no subtask is called {request.subtask!r}{did_you_mean(request.subtask, state.subtasks)}"
    if is_undone(state, request.subtask):
        return f"{request.subtask} was rolled back; begin a new run with the plan, mended"
    where = standing(state, request.subtask, request.at)
    if where in {"failed", "blocked", "escalated"} or (where == "dropped" and state.subtasks[request.subtask].attempts):
        return None
    return f"{request.subtask} is {where}; only what failed can be tried again"


def _limits_problem(request: f.LimitsChanged) -> str | None:
    if request.workers is not None and not 1 <= request.workers <= 1000:  # noqa: PLR2004 - as Policy.workers
        return "workers: 1 to 1000"
    budgets = (request.budget_dollars, request.budget_minutes, request.budget_tokens, request.budget_attempts)
    if any(value is not None and value <= 0 for value in budgets):
        return "a budget is more than nothing"
    return None
