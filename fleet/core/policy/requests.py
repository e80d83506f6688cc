"""Requests that users send to a run through its inbox.

A request has the form of a fact. `request_problem` checks whether it is allowed now, and `fact_of` converts it to a
fact.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, TypeAdapter

from fleet.core.base.ids import SubtaskId, did_you_mean
from fleet.core.base.paths import matches
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy, ReviewRules
from fleet.core.plans.plan import PLANNER, Plan, Risk, Subtask
from fleet.core.plans.revision import PlanContext, revise_plan
from fleet.core.state.machines import known_machines
from fleet.core.state.state import RunState
from fleet.core.state.status import for_revision, status_of
from fleet.core.state.subtasks import Attempt, Set, is_same

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
    | f.InstructionGiven
    | f.QuestionAnswered
    | f.WarningNoted
    | f.NodeAddRequested
    | f.NodeDrained
    | f.NodeUndrained
)
DROP = "drop it"
"""The answer that gives a subtask up."""
LONGEST_INSTRUCTION = 8_000  # characters
REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def fact_of(state: RunState, request: Request) -> Request:
    """The fact that a request becomes. A verdict names its subtasks, so that it does not depend on later rules."""
    match request:
        case f.PlanApproved():
            pending = waiting_for_approval(state)
            ids = pending if request.subtasks is None else request.subtasks
            left_out = tuple(id_ for id_ in pending if id_ not in ids)
            return request.model_copy(update={"subtasks": ids, "left_out": left_out})
        case f.QuestionAnswered() if not state.has_planner and request.answer.strip().lower() == DROP:
            return request.model_copy(update={"drop": state.questions[request.question].about is not None})
        case f.PlanRejected(subtasks=None):
            return request.model_copy(update={"subtasks": waiting_for_approval(state)})
        case _:
            return request


def request_problem(state: RunState, request: Request) -> str | None:
    """Return why `request` is not allowed now, or None."""
    match request:
        case f.QuestionAnswered():
            return _answer_problem(state, request)
        case f.RetryRequested():
            return _retry_problem(state, request)
        case f.InstructionGiven():
            return _instruction_problem(state, request)
        case (
            f.PlanApproved()
            | f.PlanRejected()
            | f.PlanRevised()
            | f.Paused()
            | f.DrainRequested()
            | f.CancelRequested()
        ) if state.ended and not _is_late_verdict(state, request):
            return f"{state.run} has already ended ({state.ending})"
        case f.PlanApproved() | f.PlanRejected():
            return _review_problem(state, request)
        case f.PlanRevised():
            return _revision_problem(state, request)
        case f.LimitsChanged():
            return _limits_problem(request)
        case f.NodeAddRequested() | f.NodeDrained() | f.NodeUndrained():
            return _node_problem(state, request)
        case _:
            return None


def _is_late_verdict(state: RunState, request: Request) -> bool:
    """Whether a request is a verdict on the plan of a run that may still continue: it takes effect then."""
    return isinstance(request, f.PlanApproved | f.PlanRejected | f.PlanRevised) and bool(open_for_approval(state))


def _review_problem(state: RunState, request: f.PlanApproved | f.PlanRejected) -> str | None:
    """A verdict must be about the current version of the plan, and only about subtasks that wait."""
    verb = "approve" if isinstance(request, f.PlanApproved) else "reject"
    if not state.plan.subtasks:
        return f"can't {verb} the plan before it exists"
    if request.version != state.plan.version:
        return f"the plan is at version {state.plan.version} now, not {request.version}. Review it again"
    pending = waiting_for_approval(state)
    for id_ in request.subtasks or ():
        if id_ not in pending:
            hint = did_you_mean(id_, pending) or f"; pending: {', '.join(pending) or 'none'}"
            return f"{id_} is not waiting for approval{hint}"
    if isinstance(request, f.PlanApproved) and (request.automatic or request.subtasks == ()):
        return "the list of subtasks is empty. Name at least one to approve"
    if not pending:
        return "no subtask is waiting for approval. To drop an approved subtask, edit the plan"
    if isinstance(request, f.PlanRejected) and not request.reason.strip():
        return "a reason is required, because the planner uses it to revise the plan"
    return None


def _revision_problem(state: RunState, request: f.PlanRevised) -> str | None:
    """A person may change the plan as the planner may, but neither ask questions nor finish."""
    revision = request.revision
    if request.call is not None or revision.finished or revision.ask:
        return "you can only change subtasks. Only the planner can ask questions and end the run"
    known = PlanContext(max_areas=state.policy.max_areas, machines=known_machines(state))
    after = revise_plan(state.plan, revision, for_revision(state), known, is_valid=True)
    return None if isinstance(after, Plan) else "the change is not valid: " + "; ".join(map(str, after))


def _answer_problem(state: RunState, request: f.QuestionAnswered) -> str | None:
    question = state.questions.get(request.question)
    if question is None:
        return f"unknown question {request.question!r}{did_you_mean(request.question, state.questions)}"
    if question.answer is not None:
        return f"{question.id} is already answered: {question.answer}"
    return None if request.answer.strip() else "the answer is empty"


def _retry_problem(state: RunState, request: f.RetryRequested) -> str | None:
    if request.subtask not in state.subtasks:
        return f"unknown subtask {request.subtask!r}{did_you_mean(request.subtask, state.subtasks)}"
    if is_undone(state, request.subtask):
        return f"{request.subtask} was rolled back. Start a new run with a corrected plan"
    status = status_of(state, request.subtask, request.at)
    if status in {"failed", "blocked", "escalated"}:
        return None
    if status == "dropped" and state.subtasks[request.subtask].attempts:
        return None
    return f"{request.subtask} is {status}. Only a failed subtask can be retried"


def _instruction_problem(state: RunState, request: f.InstructionGiven) -> str | None:
    """An instruction needs someone who may still read it."""
    subtask = state.subtasks.get(request.subtask)
    if subtask is None:
        return f"unknown subtask {request.subtask!r}{did_you_mean(request.subtask, state.subtasks)}"
    if not request.text.strip():
        return "the instruction is empty"
    if len(request.text) > LONGEST_INSTRUCTION:
        return f"the instruction has {len(request.text):,} characters, and the limit is {LONGEST_INSTRUCTION:,}"
    if subtask.parts:
        return f"{subtask.id} was split. Send the instruction to one of its parts: {', '.join(subtask.parts)}"
    if subtask.closed:
        what = "has landed" if subtask.landed is not None else "was dropped"
        return f"{subtask.id} {what}, so no attempt would read this instruction"
    if state.spec(subtask.id).worker == PLANNER:
        return f"{subtask.id} is an area without a worker. Send the instruction to one of its subtasks"
    if state.ended:
        return f"{state.run} has already ended ({state.ending})"
    return None


def _node_problem(state: RunState, request: f.NodeAddRequested | f.NodeDrained | f.NodeUndrained) -> str | None:
    if state.ended:
        return f"{state.run} has already ended ({state.ending})"
    if state.rehearsal is not None or state.relanding is not None:
        return f"{state.run} runs only on this machine, because it is a rehearsal or relands a result"
    node = state.nodes.get(request.node)
    if isinstance(request, f.NodeAddRequested):
        if node is not None and node.banned:
            return f"node {node.name} is banned from this run: {node.out}"
        return f"node {node.name} is already in use" if node is not None and not node.out else None
    if node is None and request.node not in state.policy.machines.offers:
        names = sorted({*state.nodes, *(name for name in state.policy.machines.offers if name)})
        hint = did_you_mean(request.node, names) or f"; nodes of this run: {', '.join(names) or 'none'}"
        return f"unknown node {request.node!r} in {state.run}{hint}"
    is_drained = node is not None and bool(node.drained_by)
    if isinstance(request, f.NodeDrained) == is_drained:
        return f"node {request.node} is {'already drained' if is_drained else 'not drained'}"
    return None


def _limits_problem(request: f.LimitsChanged) -> str | None:
    if request.workers is not None and not 1 <= request.workers <= 1000:  # noqa: PLR2004 - as Policy.workers
        return "workers must be between 1 and 1000"
    budgets = (request.budget_dollars, request.budget_minutes, request.budget_tokens, request.budget_attempts)
    if any(value is not None and value <= 0 for value in budgets):
        return "a budget must be greater than 0"
    return None


# ---- approval --------------------------------------------------------------------------------------------------------
# Which subtasks may start: those that a person approved, or that the rules of `[review]` approve. Queries only.
#
# A subtask is approved as it is: after any change it waits again.


RISKS: tuple[Risk, ...] = ("low", "medium", "high")
_WILDCARDS = "*?["


def is_approved(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask may start as it is now."""
    match state.policy.reviewing:
        case None:  # a run of an early version without rules: only its first plan could wait
            return not state.policy.review or state.approved is not None
        case "none":
            return True
        case _:
            return is_same(state.cleared.get(id_), state.spec(id_))


def waiting_for_approval(state: RunState) -> tuple[SubtaskId, ...]:
    """The subtasks that must not start before they are approved, in plan order."""
    return tuple(state.subtasks.in_plan_order(unapproved(state)))


def unapproved(state: RunState) -> Set:
    """Return the subtasks that wait for approval, as a set."""
    undecided = state.subtasks.undecided
    match state.policy.reviewing:
        case None:
            return undecided if state.policy.review and state.approved is None else 0
        case "none":
            return 0
        case _:
            return undecided & ~state.subtasks.approved


def open_for_approval(state: RunState) -> tuple[SubtaskId, ...]:
    """Return the subtasks that can still be approved. After a partial end, an approval applies on resume."""
    return waiting_for_approval(state) if state.ending in {None, "partial"} else ()


def awaits_approval(state: RunState) -> bool:
    return bool(unapproved(state))


def is_unreviewed(state: RunState) -> bool:
    """Return whether the plan waits and no part of it was approved yet."""
    return awaits_approval(state) and state.approved is None and not state.cleared


def is_being_revised(state: RunState) -> bool:
    """Return whether the planner is about to change a rejected part, so that no human needs to decide now."""
    planning, last = state.planning, state.reviews[-1] if state.reviews else None
    if last is None or not last.rejected or last.version != state.plan.version:
        return False
    return planning.open is not None or (bool(planning.unread.answers) and not planning.failures)


def approved_by_rules(state: RunState) -> tuple[SubtaskId, ...]:
    """The waiting subtasks that the rules approve. A subtask that a person left out or rejected waits for a person."""
    mode = state.policy.reviewing
    if mode != "auto" and not (mode == "human" and state.approved is not None):
        return ()
    undecided = (id_ for id_ in waiting_for_approval(state) if not is_same(state.shelved.get(id_), state.spec(id_)))
    return tuple(id_ for id_ in undecided if not objections(state, id_))


def objections(state: RunState, id_: SubtaskId) -> tuple[str, ...]:
    """Return why the rules do not approve a subtask of a run. Empty if they approve it.

    The steps of a rollback plan need no approval. They were reviewed with the plan and must not wait in an emergency.
    """
    if is_rollback_step(state, id_):
        return ()
    return rule_objections(state.spec(id_), state.policy, plan_risk=state.plan.risk_level)


def rule_objections(subtask: Subtask, policy: Policy, *, plan_risk: Risk = "low") -> tuple[str, ...]:
    """Return why the rules do not approve a subtask of a plan with this risk. Empty if they approve it."""
    return tuple(_rule_objections(subtask, policy.rules, policy, plan_risk))


def _rule_objections(subtask: Subtask, rules: ReviewRules, policy: Policy, plan_risk: Risk) -> Iterator[str]:
    if RISKS.index(subtask.risk) > RISKS.index(rules.max_risk):
        yield f"its risk is {subtask.risk}"
    elif RISKS.index(plan_risk) > RISKS.index(rules.max_risk):
        yield f"the risk_level of its plan is {plan_risk}"
    if rules.paths and not subtask.touches:
        yield "it lists no paths, so it may change any file"
    for pattern in rules.paths:
        if any(may_overlap(pattern, touched) for touched in subtask.touches):
            yield f"it may change {pattern}"
    if subtask.worker in rules.workers:
        yield f"its worker is {subtask.worker}"
    if rules.max_dollars is not None:
        dollars = subtask.estimate.dollars if subtask.estimate.dollars is not None else policy.subtask_dollars
        if dollars is None:
            yield "its cost is not estimated"
        elif dollars > rules.max_dollars:
            yield f"it may cost ${dollars:.2f}"


def rules_text(rules: ReviewRules) -> tuple[str, ...]:
    """The rules that have a value, as in the configuration."""
    lines = [f"max_risk = {rules.max_risk}"]
    lines += [f"paths = {', '.join(rules.paths)}"] if rules.paths else []
    lines += [f"workers = {', '.join(rules.workers)}"] if rules.workers else []
    lines += [f"max_dollars = {rules.max_dollars:g}"] if rules.max_dollars is not None else []
    return tuple(lines)


def may_overlap(one: str, other: str) -> bool:
    """Whether two patterns may match the same file. In doubt they do, so that a person reviews it."""
    if matches(one, (other,)) or matches(other, (one,)):
        return True
    first, second = _before_wildcards(one), _before_wildcards(other)
    if first == one and second == other:
        return False
    if first == one or second == other:  # a file or directory that the pattern does not match
        name, start = (one, second) if first == one else (other, first)
        return start.startswith(f"{name.rstrip('/')}/")
    return first.startswith(second) or second.startswith(first)


def _before_wildcards(pattern: str) -> str:
    ends = [at for wildcard in _WILDCARDS if (at := pattern.find(wildcard)) >= 0]
    return pattern[: min(ends)] if ends else pattern


# ---- rollback --------------------------------------------------------------------------------------------------------
# Rolling back: when a plan that failed is undone by its rollback plan, and how a run that did so ends.
#
# See docs/decisions, "A plan that failed after it changed something is rolled back".


def missing_rollback(plan: Plan, rollback: Plan | None) -> tuple[str, ...]:
    """A warning if the rollback plan that a plan names was not found."""
    if not plan.rollback_plan or rollback is not None:
        return ()
    return (f"rollback plan {plan.rollback_plan!r} not found: fleet will not undo a failure",)


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
        result = f"the rollback {name} did not finish ({', '.join(unfinished)}): {decision.why}"
    return decision.model_copy(update={"ending": "aborted", "why": f"{state.undoing}; {result}"})
