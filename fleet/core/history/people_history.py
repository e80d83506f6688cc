"""How facts about people change the state: questions, answers and requests."""

from collections.abc import Iterable
from typing import assert_never

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.fact_parts import Instruction
from fleet.core.history import planner_history
from fleet.core.history.attempt_history import stop_attempts
from fleet.core.history.replace import replace
from fleet.core.history.subtask_sets import change_attempt, give_up, put_subtask
from fleet.core.plans.plan import PLANNER
from fleet.core.state.areas import Area
from fleet.core.state.state import Question, RunState
from fleet.core.state.subtasks import SubtaskState


def after(state: RunState, fact: f.PeopleFact) -> RunState:
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
    if question.about is not None and ((question.aside and is_retry) or not state.has_planner):  # no planner is asked
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
    """Drop those of the subtasks that are open, except those under way, and settle the questions about them."""
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
    """The subtask with its last attempt under way again, if only an error of ours kept its finished work back."""
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
