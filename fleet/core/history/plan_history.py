"""How facts about the plan change the state: planner calls, versions, verdicts."""

from collections.abc import Collection, Iterable, Mapping
from typing import assert_never

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history import planner_history, subtask_sets
from fleet.core.history.people_history import (
    answer_question,
    ask_question,
    drop_open,
    settle_questions,
    settle_subtask_question,
)
from fleet.core.history.replace import replace
from fleet.core.history.subtask_sets import add_remedy, change_attempt, give_up, put_subtask
from fleet.core.plans.plan import Plan, Subtask
from fleet.core.plans.revision import Revision, apply
from fleet.core.state.areas import Area, in_charge, inside, planning_of
from fleet.core.state.state import ChosenRemedy, Review, RunState, Version
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
        return settle_questions(state, silence, answer="it answers again", by="fleet")
    return _finish_area(state, fact.area, revision) if revision.finished else state


def _finish_area(state: RunState, area: SubtaskId, revision: Revision) -> RunState:
    """The area's planner is done: what landed is the area's work, and its own checks are next."""
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
    """Add what a planner chose to the incident. A person's choice closes it: it did not recover by itself."""
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
    """Drop the subtasks of an area that was split or dropped, except those under way, which may land."""
    if area not in state.areas:
        return state
    return drop_open(state, state.subtasks.in_plan_order(inside(state, area)), why, answer=why, by="planner")


def _again(subtask: SubtaskState, guidance: str) -> SubtaskState:
    """A failed subtask starts over with another approach; any other only has a new description."""
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
    answer = f"Rejected: {fact.reason}. Revise or drop these subtasks; they don't start as they are."
    for area, ids in parts.items():
        text = f"May version {fact.version} of the plan begin? It waits with {', '.join(ids)}."
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
