"""Applies facts about the plan and about users: versions, approvals, questions and requests."""

from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.fact_parts import Instruction
from fleet.core.history import planner_history, subtask_sets
from fleet.core.history.attempt_history import stop_attempts
from fleet.core.history.replace import replace
from fleet.core.history.subtask_sets import add_remedy, change_attempt, give_up, put_subtask
from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.plans.revision import Revision, apply
from fleet.core.state.state import ChosenRemedy, Question, Review, RunState, Version
from fleet.core.state.status import Area, in_charge, inside, planning_of
from fleet.core.state.subtasks import SubtaskState

_NEW = SubtaskState(id=SubtaskId(""))


def after(state: RunState, fact: f.PlanFact) -> RunState:
    match fact:
        case f.PlannerCalled():
            return planner_history.open_call(state, fact)
        case f.PlanRevised():
            return _revised(state, fact)
        case f.PlanGraded():
            return _graded(state, fact)
        case f.PlanForecast():
            return state  # of an early version
        case f.PlannerFailed():
            return planner_history.fail_call(state, fact)
        case f.PlanApproved():
            return _approved(state, fact)
        case f.PlanRejected():
            return _rejected(state, fact)
        case _:
            assert_never(fact)


def add_version(
    state: RunState,
    plan: Plan,
    *,
    at: float,
    by: str,
    why: str,
    area: Area = None,
    among: Iterable[SubtaskId] | None = None,
) -> RunState:
    """With the next version of the plan. `among` are the only subtasks that may have changed, where that is known."""
    before = state.plan.subtasks  # none is ever removed, and new ones come last
    new = plan.subtasks[len(before) :]
    places = range(len(before)) if among is None else sorted({state.subtasks.plan.places[id_] for id_ in among})
    pairs = ((plan.subtasks[place], before[place]) for place in places)
    changed = (*(spec for spec, old in pairs if spec is not old and spec != old), *new)
    version = Version(plan=plan, changed=changed, at=at, by=by, why=why, area=area)
    specs = {**state.specs, **{spec.id: spec for spec in changed}} if changed else state.specs
    if new or any(spec.depends_on != state.spec(spec.id).depends_on for spec in changed):
        rows = [replace(_NEW, id=spec.id, area=area) for spec in new]
        subtasks = subtask_sets.by_plan(state.subtasks, specs, state.cleared, rows)
    else:
        subtasks = subtask_sets.by_changed(state.subtasks, specs, state.cleared, changed)
    return replace(state, plan=plan, specs=specs, subtasks=subtasks, versions=(*state.versions, version))


def _graded(state: RunState, fact: f.PlanGraded) -> RunState:
    def graded(version: Version) -> Version:
        return replace(version, warnings=fact.warnings) if version.plan.version == fact.version else version

    return replace(state, versions=tuple(map(graded, state.versions)))


def _revised(state: RunState, fact: f.PlanRevised) -> RunState:
    revision = fact.revision
    if revision.changes_plan:
        plan = apply(state.plan, revision, state.subtasks.plan.places)
        if not plan.goal:
            plan = plan.model_copy(update={"goal": state.goal, "plan_id": state.run})
        named = [*(change.id for change in revision.revise), *(retry.id for retry in revision.retry)]
        among = None if revision.split else [id_ for id_ in named if id_ in state.specs]
        state = add_version(state, plan, at=fact.at, by=fact.by, why=revision.assessment, area=fact.area, among=among)
    state = _apply_to_subtasks(state, fact)
    for ask in revision.ask:
        state = ask_question(state, ask.about, ask.question, ask.options, by=fact.by, at=fact.at, area=fact.area)
    if fact.call is None:  # a person's revision leaves a planner's open call as it is
        return planner_history.put_planning(state, None, replace(state.planning, idle_calls=0))
    planning = planner_history.take_answer(planning_of(state, fact.area), revision)
    state = planner_history.put_planning(state, fact.area, planning)
    if fact.area is None:  # the run's planner answers, so questions about its silence are settled
        silence = [question.id for question in state.open_questions() if question.planner]
        return settle_questions(state, silence, answer="the planner responds again", by="fleet")
    return _finish_area(state, fact.area, revision) if revision.finished else state


def _finish_area(state: RunState, area: SubtaskId, revision: Revision) -> RunState:
    """Finish the planning of an area: its landed work is the result, and its own checks run next."""
    report = f.Report(status="done", summary=revision.synthesis or "")
    return change_attempt(state, area, lambda attempt: replace(attempt, commit=state.tip, report=report, doing=""))


# ---- what a revision does to subtasks -------------------------------------------------------------------------------


def _apply_to_subtasks(state: RunState, fact: f.PlanRevised) -> RunState:
    revision = fact.revision
    retried = {retry.id: retry.guidance for retry in revision.retry}
    for id_ in (*(split.id for split in revision.split), *(drop.id for drop in revision.drop), *retried):
        state = settle_subtask_question(state, id_, answer="the plan continued without an answer", by="planner")
    for split in revision.split:
        state = _choose(state, fact, split.id, "split", split.why)
        state = _split(state, split.id, tuple(part.id for part in split.into))
        state = _drop_inside(state, split.id, "its area was split")
    for id_ in dict.fromkeys((*(change.id for change in revision.revise), *retried)):
        state = _choose(state, fact, id_, "alternative", retried.get(id_, ""))
        state = put_subtask(state, _again(state.subtasks[id_], retried.get(id_, "")))
    for drop in revision.drop:
        dropped = replace(state.subtasks[drop.id], dropped=drop.why, failure=None, question=None)
        state = give_up(put_subtask(state, dropped), drop.id, "dropped", fact.at)
        state = _drop_inside(state, drop.id, "its area was dropped")
    return state


def _choose(state: RunState, fact: f.PlanRevised, id_: SubtaskId, strategy: f.Strategy, why: str) -> RunState:
    """Add a planner's choice to the incident. A user's choice closes it, because it did not recover automatically."""
    subtask = state.subtasks[id_]
    if subtask.failure is None:
        return state
    if fact.call is None:
        return give_up(state, id_, "helped", fact.at)
    by = fact.by if fact.area is None else f"{fact.by} of {fact.area}"
    why = why or fact.revision.assessment
    chosen = ChosenRemedy(strategy, by, fact.at, len(subtask.attempts), state.plan.version, why)
    return add_remedy(state, id_, chosen)


def _split(state: RunState, id_: SubtaskId, parts: Iterable[SubtaskId]) -> RunState:
    parent = replace(state.subtasks[id_], parts=tuple(parts), failure=None, question=None)
    state = put_subtask(state, parent)
    for part in parent.parts:
        child = replace(state.subtasks[part], parent=id_, depth=parent.depth + 1, strategy="split")
        state = put_subtask(state, child)
    return state


def _drop_inside(state: RunState, area: SubtaskId, why: str) -> RunState:
    """Drop the subtasks of an area that was split or dropped, except running ones, which may land."""
    if area not in state.areas:
        return state
    return drop_open(state, state.subtasks.in_plan_order(inside(state, area)), why, answer=why, by="planner")


def _again(subtask: SubtaskState, guidance: str) -> SubtaskState:
    """Restart a failed subtask with another approach. Other subtasks only get a new description."""
    if subtask.failure is None:
        return replace(subtask, guidance=guidance or subtask.guidance)
    return replace(
        subtask, failure=None, remedy=None, question=None, not_before=0.0, strategy="alternative", guidance=guidance
    )


# ---- verdicts -------------------------------------------------------------------------------------------------------


def _approved(state: RunState, fact: f.PlanApproved) -> RunState:
    approved = _named(state, fact.subtasks)
    cleared = {**state.cleared, **{id_: state.spec(id_) for id_ in approved}}
    review = Review(fact.version, "approved", approved, fact.by, fact.automatic, fact.at)
    after = _with_cleared(replace(state, reviews=(*state.reviews, review)), cleared)
    if fact.automatic:
        return after
    left_out = fact.left_out if fact.left_out is not None else _all_waiting(after)
    return _shelve(replace(after, approved=fact.version), left_out if state.policy.reviewing is not None else ())


def _rejected(state: RunState, fact: f.PlanRejected) -> RunState:
    """Each planner in charge learns of it as the answer to a question: whether its part may start."""
    rejected = _named(state, fact.subtasks)
    parts: dict[Area, list[SubtaskId]] = {}
    for id_ in rejected:
        parts.setdefault(in_charge(state, id_), []).append(id_)
    review = Review(fact.version, "rejected", rejected, fact.by, automatic=False, at=fact.at, why=fact.reason)
    cleared = {id_: spec for id_, spec in state.cleared.items() if id_ not in rejected}
    state = _with_cleared(replace(state, reviews=(*state.reviews, review)), cleared)
    state = _shelve(state, rejected)
    answer = f"Rejected: {fact.reason}. Revise or drop these subtasks. They won't start unchanged."
    for area, ids in parts.items():
        text = f"Approve version {fact.version} of the plan? Waiting for approval: {', '.join(ids)}."
        state = ask_question(state, None, text, (), by="review", at=fact.at, area=area)
        question = list(state.questions)[-1]
        state = answer_question(state, f.QuestionAnswered(at=fact.at, question=question, answer=answer, by=fact.by))
    return state


def _with_cleared(state: RunState, cleared: Mapping[SubtaskId, Subtask]) -> RunState:
    subtasks = subtask_sets.by_changed(state.subtasks, state.specs, cleared, state.plan.subtasks)
    return replace(state, cleared=cleared, subtasks=subtasks)


def _named(state: RunState, named: Collection[SubtaskId] | None) -> tuple[SubtaskId, ...]:
    """The subtasks that a verdict is about, in plan order."""
    return tuple(id_ for id_ in state.plan.ids if id_ in named) if named is not None else _all_waiting(state)


def _all_waiting(state: RunState) -> tuple[SubtaskId, ...]:
    """All subtasks that waited for approval, by the rule of early versions, whose facts do not name them."""
    mode = state.policy.reviewing
    if mode == "none" or (mode is None and (not state.policy.review or state.approved is not None)):
        return ()
    undecided = (id_ for id_ in state.plan.ids if not state.subtasks[id_].closed and not state.subtasks[id_].current)
    return tuple(id_ for id_ in undecided if mode is None or state.cleared.get(id_) != state.spec(id_))


def _shelve(state: RunState, ids: Collection[SubtaskId]) -> RunState:
    return replace(state, shelved={**state.shelved, **{id_: state.spec(id_) for id_ in ids}})


# ---- people ----------------------------------------------------------------------------------------------------------


def after_people(state: RunState, fact: f.PeopleFact) -> RunState:
    match fact:
        case f.QuestionAsked():
            return _asked(state, fact)
        case f.QuestionAnswered():
            return answer_question(state, fact)
        case f.RetryRequested():
            return _retry_requested(state, fact)
        case f.InstructionGiven():
            return _instructed(state, fact)
        case f.InstructionRead():
            read = state.subtasks[fact.subtask].instructions[: fact.count]
            return change_attempt(
                state, fact.subtask, lambda attempt: replace(attempt, instructions=read), only=fact.number
            )
        case f.Paused() | f.Unpaused():
            return replace(state, paused_by=fact.by if isinstance(fact, f.Paused) else None)
        case f.DrainRequested():
            return replace(state, draining=True)
        case f.CancelRequested():
            return replace(stop_attempts(state, fact.at), cancelled=True)
        case f.LimitsChanged():
            return _limits_changed(state, fact)
        case _:
            assert_never(fact)


def ask_question(
    state: RunState, about: SubtaskId | None, text: str, options: tuple[str, ...], *, by: str, at: float, area: Area
) -> RunState:
    """A planner's question, or one about its plan."""
    id_ = _next_id(state)
    return _add(state, Question(id_, about, text, options, evidence="", by=by, asked_at=at, area=area))


def _asked(state: RunState, fact: f.QuestionAsked) -> RunState:
    question = Question(
        _next_id(state),
        fact.about,
        fact.question,
        fact.options,
        fact.evidence,
        by="fleet",
        asked_at=fact.at,
        planner=fact.planner,
        aside=fact.aside,
        service=fact.service,
    )
    return _add(state, question)


def _next_id(state: RunState) -> QuestionId:
    return QuestionId(f"q{len(state.questions) + 1}")


def _add(state: RunState, question: Question) -> RunState:
    asked = (*state.asked, question.id)
    state = replace(state, questions={**state.questions, question.id: question}, asked=asked)
    if question.about is None:
        return state
    state = put_subtask(state, replace(state.subtasks[question.about], question=question.id))
    return give_up(state, question.about, "asked", question.asked_at, question=question.id)


def answer_question(state: RunState, fact: f.QuestionAnswered) -> RunState:
    question = state.questions[fact.question]
    if fact.drop and question.about is not None:
        return drop_open(state, [question.about], f"dropped by {fact.by}", answer=fact.answer, by=fact.by)
    is_retry = fact.answer.strip().lower() == "retry"
    if question.about is not None and ((question.aside and is_retry) or not state.has_planner):  # no planner is called
        guidance = "" if is_retry else fact.answer
        retry = f.RetryRequested(at=fact.at, subtask=question.about, guidance=guidance, by=fact.by)
        return settle_questions(_retry_requested(state, retry), [question.id], answer=fact.answer, by=fact.by)
    state = settle_questions(state, [question.id], answer=fact.answer, by=fact.by)
    if question.service is not None:  # no concern of a planner
        outage = state.service.get(question.service)
        answered = {question.service: replace(outage, unanswered=False)} if outage is not None else {}
        return replace(state, service={**state.service, **answered})
    if question.about is not None:
        helped = _renew_limits(state, replace(state.subtasks[question.about], question=None), fact.at)
        state = put_subtask(state, helped)
    return planner_history.report_answer(state, question.id, fact.at)


def settle_subtask_question(state: RunState, id_: SubtaskId, *, answer: str, by: str) -> RunState:
    """Close the open question about a subtask, if there is one, because it was dealt with in another way."""
    question = state.subtasks[id_].question
    return state if question is None else settle_questions(state, [question], answer=answer, by=by)


def drop_open(state: RunState, ids: Iterable[SubtaskId], why: str, *, answer: str, by: str) -> RunState:
    """Drop the open ones of the given subtasks, except running ones, and settle questions about them."""
    for id_ in ids:
        subtask = state.subtasks[id_]
        if not subtask.closed and subtask.current is None:
            state = settle_subtask_question(state, id_, answer=answer, by=by)
            state = put_subtask(state, replace(subtask, dropped=why, failure=None, question=None))
    return state


def settle_questions(state: RunState, ids: Iterable[QuestionId], *, answer: str, by: str) -> RunState:
    settled = {id_: replace(state.questions[id_], answer=answer, answered_by=by) for id_ in ids}
    asked = tuple(id_ for id_ in state.asked if id_ not in settled)
    return replace(state, questions={**state.questions, **settled}, asked=asked)


def _retry_requested(state: RunState, fact: f.RetryRequested) -> RunState:
    subtask = state.subtasks[fact.subtask]
    if not fact.guidance.strip():
        subtask = _with_finished_work(subtask)
    state = settle_subtask_question(state, fact.subtask, answer=f"retry {fact.guidance}".strip(), by=fact.by)
    state = give_up(state, fact.subtask, "helped", fact.at)
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
    return put_subtask(state, _renew_limits(state, again, fact.at))


def _instructed(state: RunState, fact: f.InstructionGiven) -> RunState:
    subtask = state.subtasks[fact.subtask]
    given = Instruction(fact.text, fact.by, fact.at, fact.interrupt)
    return put_subtask(state, replace(subtask, instructions=(*subtask.instructions, given)))


def _with_finished_work(subtask: SubtaskState) -> SubtaskState:
    """Reopen the last attempt of a subtask if only an internal error held back its finished work."""
    last, failure = subtask.last, subtask.failure
    if last is None or failure is None or failure.kind != "internal" or last.commit is None or last.kept:
        return subtask
    if last.worker == PLANNER:
        return subtask
    again = replace(last, failure=None, ended_at=None, verified=False)
    return replace(subtask, attempts=(*subtask.attempts[:-1], again))


def _renew_limits(state: RunState, subtask: SubtaskState, at: float) -> SubtaskState:
    """A human helped, so the limits of the subtask count from here."""
    seconds = state.seconds_at(subtask, at)
    return replace(subtask, counted=0, retries=0, forgiven=subtask.spend, forgiven_s=seconds)


def _limits_changed(state: RunState, fact: f.LimitsChanged) -> RunState:
    limits = fact.model_dump(exclude={"kind", "at", "by"}, exclude_none=True)
    policy = state.policy.model_copy(update=limits)
    return planner_history.forget_low_budget(replace(state, policy=policy, low="", refused=""))
