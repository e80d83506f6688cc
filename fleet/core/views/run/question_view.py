"""What a person needs to know to answer a question: what was tried, what waits for the answer, and until when."""

from collections import deque
from dataclasses import dataclass

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.policy.endings import ends_unanswered_at
from fleet.core.state.facts import FailureKind, Strategy
from fleet.core.state.state import Question, RunState
from fleet.core.state.subtasks import Mark

PATHS = 12


@dataclass(frozen=True, slots=True)
class TriedView:
    """An attempt at the subtask in question."""

    attempt: int
    worker: str
    model: str | None
    strategy: Strategy
    failure: FailureKind | None
    """The class of its failure; null if it did not fail."""
    summary: str
    """What failed; empty if nothing did."""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question to a human."""

    id: QuestionId
    about: SubtaskId | None
    title: str | None
    """The title of the subtask that it is about."""
    question: str
    options: tuple[str, ...]
    """Answers to choose from; any other text is an answer, too."""
    answer: str | None
    """Null while it is open."""
    command: str
    """What to type; `TEXT` stands for the answer."""
    aside: bool
    """Whether it is set aside because of an error of fleet: the run does not wait for an answer."""
    asked_at: float
    """When it was asked, in seconds since 1970."""
    ends_in_s: float | None
    """Seconds until the run ends without an answer; null while it has other work, or waits without a limit."""
    waiting: int
    """Open subtasks that can't start before it is answered, besides the one that it is about."""
    tried: tuple[TriedView, ...]
    """The attempts so far, the first one first."""
    paths: tuple[str, ...]
    """Files that the last attempt changed, some of them."""
    evidence: str
    """The end of the output that it is about."""


def question_view(state: RunState, question: Question, now: float, *, alive: bool = True) -> QuestionView:
    subtask = state.subtasks.get(question.about) if question.about is not None else None
    spec = state.specs.get(question.about) if question.about is not None else None
    attempts = subtask.attempts if subtask is not None else ()
    waits = alive and not question.aside and question.answer is None
    return QuestionView(
        id=question.id,
        about=question.about,
        title=spec.title if spec is not None else None,
        question=question.text,
        options=question.options,
        answer=question.answer,
        command=reply_command(question),
        aside=question.aside,
        asked_at=question.asked_at,
        ends_in_s=ends_in(state, now) if waits else None,
        waiting=waiting_for(state, question),
        tried=tuple(
            TriedView(
                attempt=attempt.number,
                worker=attempt.worker,
                model=attempt.model,
                strategy=attempt.strategy,
                failure=attempt.failure.kind if attempt.failure is not None else None,
                summary=attempt.failure.summary if attempt.failure is not None else "",
            )
            for attempt in attempts
        ),
        paths=attempts[-1].paths[:PATHS] if attempts else (),
        evidence=question.evidence or _evidence(state, question),
    )


def ends_in(state: RunState, now: float) -> float | None:
    """Seconds until the run ends without an answer or an approval."""
    at = ends_unanswered_at(state, now)
    return round(max(0.0, at - now), 1) if at is not None else None


def waiting_for(state: RunState, question: Question) -> int:
    """How many open subtasks wait for an answer: all that depend on its subtask, or everything that has not started."""
    subtasks = state.subtasks
    if question.about is None:
        return subtasks.waiting.bit_count() if question.holds_all else 0
    needed_by: dict[SubtaskId, list[SubtaskId]] = {}
    for id_ in subtasks.first(subtasks.open & ~subtasks.marked(Mark.UNDERWAY)):
        for need in state.spec(id_).depends_on:
            needed_by.setdefault(need, []).append(id_)
    found, pending = {question.about}, deque([question.about])
    while pending:
        for id_ in needed_by.get(pending.popleft(), ()):
            if id_ not in found:
                found.add(id_)
                pending.append(id_)
    return len(found) - 1


def reply_command(question: Question) -> str:
    """The command that deals with a question. What is set aside needs no answer but another try."""
    if question.aside:
        return f"fleet retry {question.about}" if question.about is not None else f"fleet answer {question.id} retry"
    return f"fleet answer {question.id} TEXT"


def _evidence(state: RunState, question: Question) -> str:
    """Of a planner's question: the evidence of the last failure of its subtask."""
    subtask = state.subtasks.get(question.about) if question.about is not None else None
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure] if subtask is not None else []
    return failures[-1].evidence if failures else ""
