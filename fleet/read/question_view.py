"""Pending requests of a run to a person, with the details for a decision."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import FailureKind, FindingResult, PlanApproved, PlanRejected, ReviewFinding, Strategy
from fleet.core.policy.budget import over_budget
from fleet.core.policy.endings import ends_unanswered_at
from fleet.core.policy.requests import (
    awaits_approval,
    is_being_revised,
    is_unreviewed,
    objections,
    waiting_for_approval,
)
from fleet.core.state.state import Question, RunState
from fleet.core.state.status import phase
from fleet.core.state.subtasks import Attempt, Mark, SubtaskState

PATHS = 12
QuestionLine = Question
"""A question to a human, without details."""


@dataclass(frozen=True, slots=True)
class TriedView:
    """An attempt at the subtask of a question."""

    attempt: int
    """Number of the attempt."""
    worker: str
    """Worker kind that ran the attempt."""
    model: str | None
    """Model that ran the attempt. Null: the worker's default."""
    strategy: Strategy
    """Reason for the attempt."""
    failure: FailureKind | None
    """The class of its failure. Null if it did not fail."""
    summary: str
    """A summary of its failure. Empty if it did not fail."""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question to a human."""

    id: QuestionId
    """Id of the question."""
    about: SubtaskId | None
    """Subtask that the question concerns, if any."""
    title: str | None
    """The title of the subtask in `about`."""
    question: str
    """Text of the question."""
    options: tuple[str, ...]
    """Suggested answers. Any other text is also accepted."""
    answer: str | None
    """Null while it is open."""
    command: str
    """The command to answer it. `TEXT` is a placeholder for the answer."""
    aside: bool
    """Whether it is set aside because of an error in fleet. The run does not wait for an answer then."""
    asked_at: float
    """When it was asked, in seconds since 1970."""
    ends_in_s: float | None
    """Seconds until the run ends without an answer. Null while it has other work, or without a limit."""
    waiting: int
    """Number of other open subtasks that can't start until it is answered."""
    tried: tuple[TriedView, ...]
    """The attempts so far, in order."""
    paths: tuple[str, ...]
    """Files changed by the last attempt, at most 12."""
    evidence: str
    """The end of the output of the failure."""


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
    """Number of open subtasks that wait for an answer: dependents of its subtask, or everything not yet started."""
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
    """The command to answer a question. A question that is set aside needs a retry instead."""
    if question.aside:
        return f"fleet retry {question.about}" if question.about is not None else f"fleet answer {question.id} retry"
    return f"fleet answer {question.id} TEXT"


def _evidence(state: RunState, question: Question) -> str:
    """The evidence of the last failure of the question's subtask."""
    subtask = state.subtasks.get(question.about) if question.about is not None else None
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure] if subtask is not None else []
    return failures[-1].evidence if failures else ""


# ---- request view ----------------------------------------------------------------------------------------------------
# The output of verbs that send requests to a run, and of verbs that fail.


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request in the inbox of a run."""

    run: str
    """The name of the run."""
    request: str
    """The kind of the resulting fact, such as `paused` or `cancel_requested`."""
    message: str
    """The effect of the request, as text."""
    alive: bool
    """Whether a process is running the run. If not, `fleet resume` applies the request."""


@dataclass(frozen=True, slots=True)
class ReviewView:
    """An approval or a rejection of a plan."""

    run: str
    """The name of the run."""
    version: int
    """The version of the plan."""
    by: str
    """The person or the rules that gave it."""
    done: bool
    """Whether it was put into the inbox of the run. False with `--dry-run`."""
    subtasks: tuple[str, ...]
    """The approved or rejected subtasks."""
    waiting: Mapping[str, tuple[str, ...]]
    """Other subtasks that wait for approval, with the rules that they break. With `--dry-run`, all waiting subtasks."""
    plan_warnings: tuple[str, ...]
    """The linter's warnings about the plan."""
    alive: bool
    """Whether a process is running the run. If not, `fleet resume` applies the request."""


def review_view(state: RunState, verdict: PlanApproved | PlanRejected, *, done: bool, alive: bool) -> ReviewView:
    """Return the subtasks of a verdict, and the other waiting ones."""
    pending = waiting_for_approval(state)
    subtasks = tuple(id_ for id_ in pending if verdict.subtasks is None or id_ in verdict.subtasks)
    return ReviewView(
        run=state.run,
        version=verdict.version,
        by=verdict.by,
        done=done,
        subtasks=subtasks,
        waiting={id_: tuple(objections(state, id_)) for id_ in pending if not done or id_ not in subtasks},
        plan_warnings=state.plan_warnings,
        alive=alive,
    )


@dataclass(frozen=True, slots=True)
class ErrorView:
    """The error of a failed verb."""

    code: str
    """`usage` (exit code 2), `environment` (3), `interrupted` (130) or `internal` (70)."""
    message: str
    """The error message."""
    hint: str
    """A suggested fix. Empty if there is none."""
    exit_code: int
    """The exit code of the program."""


@dataclass(frozen=True, slots=True)
class FailedView:
    """The output of a failed verb."""

    error: ErrorView


# ---- instruction view ------------------------------------------------------------------------------------------------
# Instructions from people for a subtask, and the attempts that read them.


@dataclass(frozen=True, slots=True)
class InstructionView:
    """An instruction from a person for the workers of a subtask."""

    text: str
    """Text of the instruction."""
    by: str
    """User who gave the instruction."""
    at: float
    """When it was given, in seconds since 1970."""
    interrupt: bool
    """Whether it stopped the running command."""
    read_by: tuple[int, ...]
    """The numbers of the attempts that read it."""


def instruction_views(subtask: SubtaskState) -> tuple[InstructionView, ...]:
    return tuple(_view(subtask, index, each) for index, each in enumerate(subtask.instructions))


def _view(subtask: SubtaskState, index: int, given: Instruction) -> InstructionView:
    readers = tuple(attempt.number for attempt in subtask.attempts if len(attempt.instructions) > index)
    return InstructionView(given.text, given.by, given.at, given.interrupt, readers)


def when_read(state: RunState, id_: SubtaskId, *, interrupt: bool = False) -> str:
    """Describe which attempt will read a new instruction, and when."""
    subtask = state.subtasks[id_]
    attempt, worker = subtask.current, state.spec(id_).worker
    later = f"attempt {len(subtask.attempts) + 1} will see it when it starts"
    if attempt is None and subtask.failure is not None:
        return f"{later}. To start one, run `fleet retry {id_}`"
    if attempt is None:
        return later
    if phase(attempt) in {"checking", "landing"}:
        return f"attempt {attempt.number} has finished and is being tested, so {later}, if there is one"
    if not attempt.working:
        return f"attempt {attempt.number} will see it when it starts"
    if worker in state.policy.programs:
        return f"attempt {attempt.number} is a program and can't receive instructions, so {later}, if there is one"
    if interrupt:
        return f"attempt {attempt.number} will be interrupted and see it immediately"
    if worker in state.policy.by_turns:
        return f"attempt {attempt.number} will see it after its current turn"
    return f"attempt {attempt.number} will see it after its current tool calls"


# ---- review view -----------------------------------------------------------------------------------------------------
# The findings of reviews in a run, their results, and the rate of false alarms.


LATEST = 50  # findings listed


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding of a reviewer. Its texts are untrusted."""

    subtask: SubtaskId
    """Subtask whose change was reviewed."""
    attempt: int
    """Number of the reviewed attempt."""
    file: str
    """The file of the finding."""
    line: int
    """The line in the file."""
    problem: str
    """The problem."""
    outcome: FindingResult | None
    """`fixed`: the work passed without the line. `ignored`: the work passed with it. `reverted`: the work passed with
    it, and a later subtask removed it. Null: the subtask has not passed since."""


@dataclass(frozen=True, slots=True)
class ReviewsView:
    """The reviews of a run."""

    reviews: int
    """Number of reviews. Each vote counts as one."""
    findings: int
    """Findings that point to a line of the change, counted once per attempt."""
    discarded: int
    """Discarded findings, which did not point to a line of the change."""
    fixed: int
    """Findings whose line was gone when the work passed."""
    ignored: int
    """Findings whose line was still there when the work passed, without reverted ones."""
    reverted: int
    """Findings whose line was removed by a later subtask, after the work had passed with it."""
    false_alarm_rate: float | None
    """`ignored` divided by the sum of all three. Null while all are zero."""
    pending: int
    """Review batches pending at the model service."""
    latest: tuple[FindingView, ...]
    """The findings about the latest planned subtasks, at most 50."""


def reviews_view(state: RunState) -> ReviewsView | None:
    """Return None without reviews."""
    reviewed = [
        (subtask.id, attempt)
        for subtask in state.subtasks.values()
        for attempt in subtask.attempts
        if attempt.votes or attempt.batch is not None
    ]
    if not reviewed:
        return None
    found = [(id_, attempt.number, finding) for id_, attempt in reviewed for finding in _findings(attempt)]
    outcomes = Counter(state.settled.get(key) for key in found)
    settled = outcomes["fixed"] + outcomes["ignored"] + outcomes["reverted"]
    return ReviewsView(
        reviews=sum(len(attempt.votes) for _, attempt in reviewed),
        findings=len(found),
        discarded=sum(vote.discarded for _, attempt in reviewed for vote in attempt.votes),
        fixed=outcomes["fixed"],
        ignored=outcomes["ignored"],
        reverted=outcomes["reverted"],
        false_alarm_rate=round(outcomes["ignored"] / settled, 3) if settled else None,
        pending=len(state.pending_reviews),
        latest=_latest(state, found),
    )


def findings_of(state: RunState, id_: SubtaskId, attempts: Sequence[Attempt]) -> tuple[FindingView, ...]:
    """All findings about these attempts."""
    return tuple(_review_view(state, id_, each.number, finding) for each in attempts for finding in _findings(each))


def _findings(attempt: Attempt) -> Iterable[ReviewFinding]:
    """The findings without duplicates."""
    return dict.fromkeys(finding for vote in attempt.votes for finding in vote.findings)


def _latest(state: RunState, found: Sequence[tuple[SubtaskId, int, ReviewFinding]]) -> tuple[FindingView, ...]:
    return tuple(_review_view(state, *each) for each in found[-LATEST:])


def _review_view(state: RunState, id_: SubtaskId, number: int, finding: ReviewFinding) -> FindingView:
    outcome = state.settled.get((id_, number, finding))
    return FindingView(id_, number, finding.file, finding.line, finding.problem, outcome)


# ---- needs -----------------------------------------------------------------------------------------------------------
# Pending requests to a person, used by every screen, the report and the metrics.


NeedKind = Literal["resume", "approve", "answer", "budget", "unpause"]
"""The required action: resume the run, approve work, answer a question, raise a budget or end a pause."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Subtasks that wait for approval."""

    subtasks: tuple[SubtaskId, ...]
    """In plan order."""
    is_whole_plan: bool
    """Whether they are all planned subtasks, and none was approved before."""
    objections: tuple[str, ...]
    """The rules that the first one breaks."""


@dataclass(frozen=True, slots=True)
class Needed:
    """A pending request to a person."""

    key: str
    """Unique in its run: `q:` with the question, or the name of the action."""
    what: NeedKind
    question: QuestionId | None = None
    """The question to answer."""
    approval: Approval | None = None
    """The subtasks to approve."""
    why: str = ""
    """The exhausted budget."""


def needed(state: RunState, now: float, *, alive: bool) -> tuple[Needed, ...]:
    """The pending requests of a run, most urgent first. Empty for an ended run."""
    return () if state.ended else tuple(_needed(state, now, alive=alive))


def _needed(state: RunState, now: float, *, alive: bool) -> Iterator[Needed]:
    if not alive:
        yield Needed("resume", "resume")
    if awaits_approval(state) and not is_being_revised(state):
        yield Needed("approve", "approve", approval=_approval(state))
    for question in state.open_questions():
        yield Needed(f"q:{question.id}", "answer", question=question.id)
    if (spent := over_budget(state, now)) is not None:
        yield Needed("budget", "budget", why=spent)
    if state.paused and not state.rests:
        yield Needed("pause", "unpause")


def _approval(state: RunState) -> Approval:
    ids = waiting_for_approval(state)
    is_whole_plan = is_unreviewed(state) and len(ids) == len(state.plan.subtasks)
    return Approval(ids, is_whole_plan, objections(state, ids[0]))


def kinds_of(needs: Iterable[Needed]) -> tuple[NeedKind, ...]:
    """The kinds of requests, without duplicates."""
    return tuple(dict.fromkeys(need.what for need in needs))
