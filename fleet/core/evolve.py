"""History: how each fact changes what is true. Pure and total, and it means the same for ever.

Everything that changes state is in this file. Nothing here decides anything.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from fleet.core import facts as f
from fleet.core import incidents, losses, planners, queue, reviews, service
from fleet.core.areas import Area, in_charge, inside, planning_of
from fleet.core.ids import QuestionId, SubtaskId
from fleet.core.incidents import POLICY, Chosen, Trouble
from fleet.core.plan import PLANNER, Plan
from fleet.core.revision import Revision, apply
from fleet.core.state import (
    NOT_MOVED,
    Attempt,
    Question,
    RunState,
    SubtaskState,
    Version,
)
from fleet.core.usage import Cost, Spend


def evolve(state: RunState | None, fact: f.Fact) -> RunState:
    """The state after `fact`. A run begins with `RunStarted`; any other first fact is a broken journal."""
    if isinstance(fact, f.RunStarted):
        return _started(fact)
    if state is None:
        raise ValueError(f"a run begins with run_started, not with {fact.kind}")
    return replace(_after(state, fact), last_at=fact.at)


def _started(fact: f.RunStarted) -> RunState:
    state = RunState(
        run=fact.run,
        goal=fact.goal,
        repository=fact.repository,
        base=fact.base,
        base_name=fact.base_name,
        result_branch=fact.result_branch,
        policy=fact.policy,
        started_at=fact.at,
        last_at=fact.at,
        sandbox=fact.sandbox,
        simulated=fact.simulated,
        tip=fact.base,
    )
    if fact.plan is None:
        return state
    return _with_plan(
        replace(state, given=True, rollback=fact.rollback, values=fact.values),
        fact.plan,
        at=fact.at,
        by="operator",
        why="the plan the run came with",
    )


def _after(state: RunState, fact: f.Fact) -> RunState:  # noqa: C901, PLR0912 - one case a fact
    match fact:
        case f.RunStarted():
            return _started(fact)
        case f.EngineStarted():
            return _engine_started(state, fact)
        case f.EngineStopped():
            return replace(state, active_s=state.seconds(fact.at), engine_since=None, held=Cost())
        case f.BaseChecked():
            red = tuple(check for check in fact.checks if not check.fine)
            gate = {check.command: check.seconds for check in fact.checks}
            return replace(state, base_checked=True, base_failure=fact.failure, red_base=red, gate=gate)
        case f.WarningNoted():
            return replace(state, warnings=(*state.warnings, fact.text))
        case f.PlannerCalled():
            return planners.called(state, fact)
        case f.ModelCalled():
            return _model_called(state, fact)
        case f.CallsHeld() | f.CallLost() | f.CallRefused() | f.BudgetRanLow():
            return _budgeted(state, fact)
        case f.ServiceChanged():
            return service.changed(state, fact)
        case f.PlanRevised():
            return _revised(state, fact)
        case f.PlanGraded():
            return _graded(state, fact)
        case f.PlannerFailed():
            return planners.failed(state, fact)
        case f.PlanApproved() | f.PlanRejected():
            return reviews.approved(state, fact) if isinstance(fact, f.PlanApproved) else _rejected(state, fact)
        case f.AttemptStarted():
            return _attempt_started(state, fact)
        case f.WorkerStarted():
            return _worker_started(state, fact)
        case f.AttemptCommitted():
            return _committed(state, fact)
        case f.AttemptUnchanged():
            return _unchanged(state, fact)
        case f.AttemptVerified():
            return _verified(state, fact)
        case f.AttemptFailed():
            return _attempt_failed(state, fact)
        case f.RemedyChosen():
            return _remedied(state, fact)
        case f.BatchFormed():
            return replace(state, landing=queue.formed(state.landing, fact))
        case f.BatchTested():
            return _batch_tested(state, fact)
        case f.Published():
            return replace(state, published=fact.tip, publish_failures=0)
        case f.WorkLost():
            return _work_lost(state, fact)
        case f.PublishFailed():
            return _publish_failed(state, fact)
        case f.QuestionAsked():
            question = (fact.about, fact.question, fact.options, fact.evidence)
            return _asked(state, *question, by="fleet", at=fact.at, planner=fact.planner, service=fact.service)
        case f.QuestionAnswered():
            return _answered(state, fact)
        case f.RetryRequested():
            return _retry_requested(state, fact)
        case f.Paused() | f.Unpaused():
            return replace(state, paused=isinstance(fact, f.Paused))
        case f.DrainRequested():
            return replace(state, draining=True)
        case f.CancelRequested():
            return _cancelled(state, fact)
        case f.LimitsChanged():
            return _limits_changed(state, fact)
        case f.RollbackStarted():
            return _rolled_back(state, fact)
        case f.RunEnded():
            return _ended(state, fact)
        case f.RunReopened():
            return _reopened(state)
        case _:
            assert_never(fact)


# ---- the run --------------------------------------------------------------------------------------------------------


def _engine_started(state: RunState, fact: f.EngineStarted) -> RunState:
    idle = _each_attempt(state, lambda attempt: replace(attempt, working=False))
    taken = replace(idle, epoch=fact.epoch, draining=False, sandbox=fact.sandbox or state.sandbox)
    fresh = service.unknown(replace(taken, base_url=fact.base_url))
    doubted = replace(fresh, doubt=state.doubt + state.held, held=Cost())  # nothing, where the last engine said goodbye
    return replace(doubted, active_s=state.seconds(state.last_at), engine_since=fact.at)


def _budgeted(state: RunState, fact: f.CallsHeld | f.CallLost | f.CallRefused | f.BudgetRanLow) -> RunState:
    match fact:
        case f.CallsHeld():
            return replace(state, held=fact.cost)
        case f.CallLost():
            return replace(state, doubt=state.doubt + fact.cost)
        case f.CallRefused():
            return replace(state, refused=fact.why)
        case f.BudgetRanLow():
            return replace(state, low=fact.why)
        case _:
            assert_never(fact)


def _limits_changed(state: RunState, fact: f.LimitsChanged) -> RunState:
    given = {name: getattr(fact, name) for name in type(fact).model_fields if name not in {"kind", "at", "by"}}
    changed = {name: value for name, value in given.items() if value is not None}
    policy = state.policy.model_copy(update=changed)
    return planners.with_a_new_budget(replace(state, policy=policy, low="", refused=""))


def _publish_failed(state: RunState, fact: f.PublishFailed) -> RunState:
    note = f"{NOT_MOVED}{fact.why}"
    seen = state.warnings if note in state.warnings else (*state.warnings, note)
    failures = state.publish_failures + 1
    return replace(state, publish_not_before=fact.not_before, publish_failures=failures, warnings=seen)


def _ended(state: RunState, fact: f.RunEnded) -> RunState:
    closed = _gave_up(state, None, "ended", fact.at)
    ended = replace(closed, ending=fact.ending, ending_why=fact.why, ended_at=fact.at)
    return planners.all_closed(replace(ended, active_s=state.seconds(fact.at), engine_since=None, held=Cost()))


def _reopened(state: RunState) -> RunState:
    again = planners.begun_anew(replace(state, ending=None, ending_why="", ended_at=None, cancelled=False))
    known = state.base_checked and state.commits > 0
    return replace(again, publish_failures=0, publish_not_before=0.0, base_checked=known)


# ---- the plan -------------------------------------------------------------------------------------------------------


def _with_plan(state: RunState, plan: Plan, *, at: float, by: str, why: str, area: Area = None) -> RunState:
    new = {id_: SubtaskState(id=id_, area=area) for id_ in plan.ids if id_ not in state.subtasks}
    version = Version(plan=plan, at=at, by=by, why=why, area=area)
    specs = {subtask.id: subtask for subtask in plan.subtasks}
    subtasks = {**state.subtasks, **new}
    return replace(state, plan=plan, specs=specs, subtasks=subtasks, versions=(*state.versions, version))


def _revised(state: RunState, fact: f.PlanRevised) -> RunState:
    revision = fact.revision
    if revision.changes_plan:
        plan = apply(state.plan, revision)
        if not plan.goal:
            plan = plan.model_copy(update={"goal": state.goal, "plan_id": state.run})
        state = _with_plan(state, plan, at=fact.at, by=fact.by, why=revision.assessment, area=fact.area)
    state = _with_standings(state, fact)
    for ask in revision.ask:
        state = _asked(state, ask.about, ask.question, ask.options, "", by=fact.by, at=fact.at, area=fact.area)
    if fact.call is None:  # a person's: what the planner is at goes on
        return planners.put(state, None, replace(state.planning, idle_calls=0))
    state = planners.put(state, fact.area, planners.answered(planning_of(state, fact.area), revision))
    state = _back_again(state) if fact.area is None else state
    return _area_finished(state, fact.area, revision) if fact.area is not None and revision.finished else state


def _back_again(state: RunState) -> RunState:
    """The planner answers: nobody needs to be asked about that any more."""
    settled = {
        id_: replace(question, answer="it answers again", answered_by="fleet")
        for id_, question in state.questions.items()
        if question.planner and question.answer is None
    }
    return replace(state, questions={**state.questions, **settled})


def _area_finished(state: RunState, area: SubtaskId, revision: Revision) -> RunState:
    """Its planner is done: what landed is the area's work, and its own checks are next."""
    report = f.Report(status="done", summary=revision.synthesis or "")
    return _attempt(state, area, lambda attempt: replace(attempt, commit=state.tip, report=report, doing=""))


def _graded(state: RunState, fact: f.PlanGraded) -> RunState:
    def graded(version: Version) -> Version:
        return replace(version, warnings=fact.warnings) if version.plan.version == fact.version else version

    return replace(state, versions=tuple(map(graded, state.versions)))


def _rejected(state: RunState, fact: f.PlanRejected) -> RunState:
    """Each planner in charge hears of it as the answer to a question: whether its part may begin."""
    parts: dict[Area, list[SubtaskId]] = {}
    for id_ in reviews.concerned(state, fact.subtasks):
        parts.setdefault(in_charge(state, id_), []).append(id_)
    state = reviews.rejected(state, fact)
    for area, ids in parts.items():
        text = f"May version {fact.version} of the plan begin? It waits with {', '.join(ids)}."
        state = _asked(state, None, text, (), "", by="review", at=fact.at, area=area)
        said = f"Rejected: {fact.reason}. Revise or drop these subtasks; they don't begin as they are."
        state = _answered(
            state, f.QuestionAnswered(at=fact.at, question=list(state.questions)[-1], answer=said, by=fact.by)
        )
    return state


def _with_standings(state: RunState, fact: f.PlanRevised) -> RunState:
    revision, at = fact.revision, fact.at
    retried = {retry.id: retry.guidance for retry in revision.retry}
    for id_ in (*(split.id for split in revision.split), *(drop.id for drop in revision.drop), *retried):
        state = _moot(state, id_, answer="the plan went on without an answer", by="planner")
    for split in revision.split:
        state = _remedied_by(state, fact, split.id, "split", split.why)
        state = _split(state, split.id, tuple(part.id for part in split.into))
        state = _emptied(state, split.id, "its area was split")
    for id_ in dict.fromkeys((*(change.id for change in revision.revise), *retried)):
        state = _remedied_by(state, fact, id_, "alternative", retried.get(id_, ""))
        state = _put(state, _again(state.subtasks[id_], retried.get(id_, "")))
    for drop in revision.drop:
        dropped = replace(state.subtasks[drop.id], dropped=drop.why, failure=None, question=None)
        state = _gave_up(_put(state, dropped), drop.id, "dropped", at)
        state = _emptied(state, drop.id, "its area was dropped")
    return state


def _remedied_by(state: RunState, fact: f.PlanRevised, id_: SubtaskId, strategy: f.Strategy, why: str) -> RunState:
    """What a planner chose about a failure. A person who does so helps: from there on it is no recovery."""
    subtask = state.subtasks[id_]
    if subtask.failure is None:
        return state
    if fact.call is None:
        return _gave_up(state, id_, "helped", fact.at)
    said = why or fact.revision.assessment
    by = fact.by if fact.area is None else f"{fact.by} of {fact.area}"
    chosen = Chosen(strategy, by, fact.at, len(subtask.attempts), state.plan.version, said)
    return replace(state, incidents=incidents.remedied(state.incidents, id_, chosen))


def _emptied(state: RunState, area: SubtaskId, why: str) -> RunState:
    """An area is gone: what nobody works on in it goes with it, what is under way may land."""
    if area not in state.areas:
        return state
    for subtask in list(inside(state, area)):
        if not subtask.closed and subtask.current is None:
            state = _moot(state, subtask.id, answer=why, by="planner")
            state = _put(state, replace(subtask, dropped=why, failure=None, question=None))
    return state


def _split(state: RunState, id_: SubtaskId, parts: tuple[SubtaskId, ...]) -> RunState:
    parent = replace(state.subtasks[id_], parts=parts, failure=None, question=None)
    state = _put(state, parent)
    for part in parts:
        child = replace(state.subtasks[part], parent=id_, depth=parent.depth + 1, strategy="split")
        state = _put(state, child)
    return state


def _again(subtask: SubtaskState, guidance: str) -> SubtaskState:
    """Another approach to a subtask that failed; a subtask that did not is only described anew."""
    if subtask.failure is None:
        return replace(subtask, guidance=guidance or subtask.guidance)
    return replace(
        subtask, failure=None, remedy=None, question=None, not_before=0.0, strategy="alternative", guidance=guidance
    )


# ---- attempts -------------------------------------------------------------------------------------------------------


def _put(state: RunState, subtask: SubtaskState) -> RunState:
    return replace(state, subtasks={**state.subtasks, subtask.id: subtask})


def _attempt(
    state: RunState, id_: SubtaskId, change: Callable[[Attempt], Attempt], *, only: int | None = None
) -> RunState:
    """With the attempt that is under way changed, if it is number `only` where that is given."""
    subtask = state.subtasks[id_]
    current = subtask.current
    if current is None or only not in {None, current.number}:  # a late word of an attempt that is over
        return state
    return _put(state, replace(subtask, attempts=(*subtask.attempts[:-1], change(subtask.attempts[-1]))))


def _each_attempt(state: RunState, change: Callable[[Attempt], Attempt]) -> RunState:
    for subtask, _ in list(state.underway()):
        state = _attempt(state, subtask.id, change)
    return state


def _attempt_started(state: RunState, fact: f.AttemptStarted) -> RunState:
    attempt = Attempt(
        number=fact.number,
        worker=fact.worker,
        model=fact.model,
        base=fact.base,
        strategy=fact.strategy,
        guidance=fact.guidance,
        started_at=fact.at,
        allowance=fact.allowance,
    )
    subtask = state.subtasks[fact.subtask]
    started = _put(state, replace(subtask, attempts=(*subtask.attempts, attempt), failure=None))
    if fact.worker == PLANNER:
        started = planners.opened(started, fact.subtask)
    return replace(started, attempts=started.attempts + 1)


def _worker_started(state: RunState, fact: f.WorkerStarted) -> RunState:
    def began(attempt: Attempt) -> Attempt:
        return replace(attempt, working=True, worked=True, before=fact.before)

    working = _attempt(state, fact.subtask, began, only=fact.number)
    return replace(working, peak=max(working.peak, working.working()))


def _committed(state: RunState, fact: f.AttemptCommitted) -> RunState:
    def changed(attempt: Attempt) -> Attempt:
        return replace(attempt, working=False, commit=fact.commit, paths=fact.paths, report=fact.report, doing="")

    return _attempt(state, fact.subtask, changed, only=fact.number)


def _unchanged(state: RunState, fact: f.AttemptUnchanged) -> RunState:
    def changed(attempt: Attempt) -> Attempt:
        return replace(attempt, working=False, commit=attempt.base, report=fact.report, unchanged=True, doing="")

    return _attempt(state, fact.subtask, changed, only=fact.number)


def _verified(state: RunState, fact: f.AttemptVerified) -> RunState:
    change = _attempt(
        state, fact.subtask, lambda attempt: replace(attempt, verified=True, checks=fact.checks), only=fact.number
    )
    if change is state:
        return state
    attempt = change.subtasks[fact.subtask].attempts[-1]
    if attempt.worker == PLANNER or attempt.unchanged:
        return _landed_without_merge(change, fact)
    return replace(change, landing=queue.joined(change.landing, fact.subtask))


def _landed_without_merge(state: RunState, fact: f.AttemptVerified) -> RunState:
    """Nothing is merged: what an area is made of has landed, or a step had nothing to land, and the checks pass."""
    commit = state.subtasks[fact.subtask].attempts[-1].commit or state.tip
    member = f.Member(subtask=fact.subtask, attempt=fact.number, commit=commit, tested=True)
    return _landed(state, member, fact.at)


def _model_called(state: RunState, fact: f.ModelCalled) -> RunState:
    spend = state.spend.get(fact.role, Spend()).plus(fact.usage, fact.dollars)
    state = replace(state, spend={**state.spend, fact.role: spend})
    if fact.subtask is None:
        planning = planning_of(state, fact.area)
        state = planners.put(state, fact.area, replace(planning, turn=fact.turn, doing=fact.doing))
    if (id_ := fact.subtask or fact.area) is None:
        return state
    subtask = state.subtasks[id_]
    number = fact.attempt if fact.subtask is not None else len(subtask.attempts)

    def counted(attempt: Attempt) -> Attempt:
        if attempt.number != number:
            return attempt
        return replace(
            attempt,
            spend=attempt.spend.plus(fact.usage, fact.dollars),
            turn=fact.turn,
            doing=fact.doing,
            model=fact.model,
        )

    return _put(state, replace(subtask, attempts=tuple(map(counted, subtask.attempts))))


def _attempt_failed(state: RunState, fact: f.AttemptFailed) -> RunState:
    current = state.subtasks[fact.subtask].current
    if current is None or current.number != fact.number:
        return state
    state = _attempt(
        state,
        fact.subtask,
        lambda attempt: replace(
            attempt,
            commit=fact.commit or attempt.commit,
            kept=attempt.kept or fact.commit is not None,
            checks=fact.checks or attempt.checks,
        ),
    )
    return _failed(state, fact.subtask, fact.failure, fact.report, fact.at)


def _failed(state: RunState, id_: SubtaskId, failure: f.Failure, report: f.Report | None, at: float) -> RunState:
    number = state.subtasks[id_].attempts[-1].number
    state = _attempt(
        state,
        id_,
        lambda attempt: replace(
            attempt, working=False, failure=failure, report=report or attempt.report, ended_at=at, doing=""
        ),
    )
    counted = failure.kind not in f.FREE
    subtask = state.subtasks[id_]
    subtask = replace(
        subtask,
        failure=failure,
        remedy=None,
        counted=subtask.counted + counted,
        retries=subtask.retries + (not counted and failure.kind != "spent"),
    )
    state = planners.handed_up(_put(state, subtask), id_)
    if id_ in state.landing.queue or any(probe.holds((id_,)) for probe in state.landing.probes):
        guilty = [id_] if failure.kind == "integration" else []
        state = replace(state, landing=queue.without(state.landing, [id_], guilty=guilty))
    if failure.kind == "spent":  # stopped, not failed: nothing is to be recovered from
        return state
    trouble = Trouble(subtask=id_, attempt=number, kind=failure.kind, summary=failure.summary)
    return replace(state, incidents=incidents.failed(state.incidents, trouble, at))


def _remedied(state: RunState, fact: f.RemedyChosen) -> RunState:
    subtask = state.subtasks[fact.subtask]
    match fact.remedy:
        case "retry" | "resolve":
            again = replace(subtask, failure=None, remedy=None, not_before=fact.not_before, strategy=fact.remedy)
            if fact.remedy == "resolve":
                again = replace(again, guidance=fact.guidance)
            chosen = Chosen(fact.remedy, POLICY, fact.at, after=fact.number, not_before=fact.not_before)
            state = replace(state, incidents=incidents.remedied(state.incidents, subtask.id, chosen))
            return _put(state, again)
        case "skip":
            state = _put(state, replace(subtask, skipped=True, failure=None))
            return planners.told(_gave_up(state, subtask.id, "skipped", fact.at), subtask.id, fact.at, urgent=False)
        case "planner":
            return planners.told(_put(state, replace(subtask, remedy="planner")), subtask.id, fact.at, urgent=True)
        case _:
            assert_never(fact.remedy)


# ---- landing --------------------------------------------------------------------------------------------------------


def _batch_tested(state: RunState, fact: f.BatchTested) -> RunState:
    passed = {check.command for check in fact.checks if check.passed}
    took = {check.command: check.seconds for check in fact.checks if check.command in state.gate}
    state = replace(
        state,
        landing=queue.tested(state.landing, fact),
        tip=fact.tip,
        commits=state.commits + len(fact.landed),
        red_base=tuple(check for check in state.red_base if check.command not in passed),
        gate={**state.gate, **took},
    )
    for member in fact.landed:
        state = _landed(state, member, fact.at)
    for ejected in fact.ejected:
        state = _failed(state, ejected.subtask, ejected.failure, None, fact.at)
    return state


def _landed(state: RunState, member: f.Member, at: float) -> RunState:
    strategy = state.subtasks[member.subtask].attempts[-1].strategy
    state = _attempt(
        state, member.subtask, lambda attempt: replace(attempt, landed=member.commit, tested=member.tested, ended_at=at)
    )
    state = _put(state, replace(state.subtasks[member.subtask], landed=member.commit, failure=None))
    over = incidents.recovered(state.incidents, member.subtask, strategy, at, parts=False)
    parent = state.subtasks[member.subtask].parent
    while parent is not None and _reached(state, parent):
        how: f.Strategy = "human" if incidents.helped(over, _family(state, parent)) else "split"
        over = incidents.recovered(over, parent, how, at, parts=True)
        parent = state.subtasks[parent].parent
    return planners.told(replace(state, incidents=over), member.subtask, at, urgent=False)


def _work_lost(state: RunState, fact: f.WorkLost) -> RunState:
    """An incident like any other: it costs no attempt, and is over when the work has landed."""
    state = losses.forgotten(state, fact)
    gone = f.Failure(kind="infrastructure", summary="its commit can't be read any more: it is done again")
    for id_ in fact.anew:
        state = _failed(state, id_, gone, None, fact.at)
    return state


def _reached(state: RunState, id_: SubtaskId) -> bool:
    """Whether what a subtask was for has landed: itself, or all parts it was split into."""
    subtask = state.subtasks[id_]
    if subtask.parts:
        return all(_reached(state, part) for part in subtask.parts)
    return subtask.landed is not None


def _family(state: RunState, id_: SubtaskId) -> list[SubtaskId]:
    """The parts a subtask was split into, and theirs."""
    return [one for part in state.subtasks[id_].parts for one in (part, *_family(state, part))]


# ---- incidents ------------------------------------------------------------------------------------------------------


def _gave_up(
    state: RunState, id_: SubtaskId | None, closing: incidents.Closing, at: float, *, question: QuestionId | None = None
) -> RunState:
    return replace(state, incidents=incidents.given_up(state.incidents, id_, closing, at, question=question))


# ---- people ---------------------------------------------------------------------------------------------------------


def _asked(
    state: RunState,
    about: SubtaskId | None,
    text: str,
    options: tuple[str, ...],
    evidence: str,
    *,
    by: str,
    at: float,
    area: Area = None,
    planner: bool = False,
    service: str | None = None,
) -> RunState:
    id_: QuestionId = f"q{len(state.questions) + 1}"
    question = Question(
        id_, about, text, options, evidence, by=by, asked_at=at, area=area, planner=planner, service=service
    )
    state = replace(state, questions={**state.questions, id_: question})
    if about is None:
        return state
    state = _put(state, replace(state.subtasks[about], question=id_))
    return _gave_up(state, about, "asked", at, question=id_)


def _answered(state: RunState, fact: f.QuestionAnswered) -> RunState:
    question = state.questions[fact.question]
    answered = replace(question, answer=fact.answer, answered_by=fact.by)
    state = replace(state, questions={**state.questions, question.id: answered})
    if question.service is not None:  # whoever waits for the service hears of it; the planner has no use for it
        quiet = {scope: replace(o, heard=o.heard and scope != question.service) for scope, o in state.service.items()}
        return replace(state, service=quiet)
    if question.about is not None:
        helped = _forgiven(state, replace(state.subtasks[question.about], question=None), fact.at)
        state = _put(state, helped)
    return planners.heard_answer(state, question.id, fact.at)


def _moot(state: RunState, id_: SubtaskId, *, answer: str, by: str) -> RunState:
    """Nobody needs to answer the open question about a subtask any more: what was done answers it."""
    asked = state.subtasks[id_].question
    if asked is None:
        return state
    question = replace(state.questions[asked], answer=answer, answered_by=by)
    return replace(state, questions={**state.questions, asked: question})


def _retry_requested(state: RunState, fact: f.RetryRequested) -> RunState:
    subtask = state.subtasks[fact.subtask]
    state = _moot(state, fact.subtask, answer=f"retry {fact.guidance}".strip(), by=fact.by)
    state = _gave_up(state, fact.subtask, "helped", fact.at)
    again = replace(
        subtask,
        failure=None,
        remedy=None,
        question=None,
        dropped=None,
        skipped=False,
        not_before=0.0,
        strategy="human",
        guidance=fact.guidance,
    )
    return _put(state, _forgiven(state, again, fact.at))


def _forgiven(state: RunState, subtask: SubtaskState, at: float) -> SubtaskState:
    """A human helped: the limits of the subtask begin anew."""
    seconds = state.seconds_at(subtask, at)
    return replace(subtask, counted=0, retries=0, forgiven=subtask.spend, forgiven_s=seconds)


def _cancelled(state: RunState, fact: f.CancelRequested) -> RunState:
    return replace(_stopped(state, fact.at), cancelled=True)


def _stopped(state: RunState, at: float) -> RunState:
    """What runs is stopped; what is on its way to the integration branch may arrive."""
    members = {member.subtask for probe in state.landing.probes for member in probe.members}
    for subtask, _ in list(state.underway()):
        if subtask.id not in members:
            state = _attempt(state, subtask.id, lambda attempt: replace(attempt, working=False, ended_at=at))
    return planners.all_closed(replace(state, landing=queue.only(state.landing, members)))


def _rolled_back(state: RunState, fact: f.RollbackStarted) -> RunState:
    """The rollback plan takes the place of all that is still open; what was done stays, and is known to have been."""
    undo = state.rollback
    if undo is None:
        return state
    state = _stopped(state, fact.at)
    for subtask in list(state.subtasks.values()):
        if not subtask.closed and subtask.current is None:
            state = _moot(state, subtask.id, answer="the rollback plan runs", by="fleet")
            given_up = replace(state.subtasks[subtask.id], dropped=fact.why, failure=None, question=None)
            state = _put(state, given_up)
    state = _gave_up(state, None, "rolled back", fact.at)
    plan = state.plan.model_copy(
        update={"version": state.plan.version + 1, "subtasks": (*state.plan.subtasks, *undo.subtasks)}
    )
    why = f"rollback plan {undo.plan_id}: {fact.why}"
    return replace(_with_plan(state, plan, at=fact.at, by="fleet", why=why), undoing=fact.why)
