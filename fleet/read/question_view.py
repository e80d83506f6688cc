"""What a run needs from a person, and what a person needs to know to answer a question."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import FailureKind, Finding, FindingResult, PlanApproved, PlanRejected, Strategy
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
"""A question to a human, in short."""


@dataclass(frozen=True, slots=True)
class TriedView:
    """An attempt at the subtask in question."""

    attempt: int
    """Number of the attempt."""
    worker: str
    """Worker kind that ran the attempt."""
    model: str | None
    """Model that ran the attempt. Null: the worker's default."""
    strategy: Strategy
    """Reason for the attempt."""
    failure: FailureKind | None
    """The class of its failure; null if it did not fail."""
    summary: str
    """What failed; empty if nothing did."""


@dataclass(frozen=True, slots=True)
class QuestionView:
    """A question to a human."""

    id: QuestionId
    """Id of the question."""
    about: SubtaskId | None
    """Subtask that the question concerns, if any."""
    title: str | None
    """The title of the subtask that it is about."""
    question: str
    """Text of the question."""
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


# ---- request view ----------------------------------------------------------------------------------------------------
# What a verb answers that asks something of a run, or that fails.


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request that was put into the inbox of a run."""

    run: str
    """The name of the run."""
    request: str
    """The kind of the request, as the fact that it becomes: `paused`, `cancel_requested` and so on."""
    message: str
    """What it does, for a person."""
    alive: bool
    """Whether a process runs the run; if not, `fleet resume` takes the request."""


@dataclass(frozen=True, slots=True)
class ReviewView:
    """An approval or a rejection of a plan."""

    run: str
    """The name of the run."""
    version: int
    """The version of the plan."""
    by: str
    """Who gave it."""
    done: bool
    """Whether it was put into the inbox of the run; false with `--dry-run`."""
    subtasks: tuple[str, ...]
    """The subtasks that it is about."""
    waiting: Mapping[str, tuple[str, ...]]
    """What waits for approval besides, each with the rules that stop it; with `--dry-run` all that waits."""
    plan_warnings: tuple[str, ...]
    """What the linter notes about the plan."""
    alive: bool
    """Whether a process runs the run; if not, `fleet resume` takes the request."""


def review_view(state: RunState, verdict: PlanApproved | PlanRejected, *, done: bool, alive: bool) -> ReviewView:
    """What a verdict is about, and what waits besides."""
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
    """Why a verb failed."""

    code: str
    """`usage` (exit code 2), `environment` (3), `interrupted` (130) or `internal` (70)."""
    message: str
    """What is wrong, and where."""
    hint: str
    """What to do next; empty where the message says all."""
    exit_code: int
    """The exit code of the program."""


@dataclass(frozen=True, slots=True)
class FailedView:
    """What a verb prints instead of its view, if it failed."""

    error: ErrorView


# ---- instruction view ------------------------------------------------------------------------------------------------
# What people told those who work on a subtask, and which attempts have read it, or will.


@dataclass(frozen=True, slots=True)
class InstructionView:
    """An instruction of a person for the workers of a subtask."""

    text: str
    """Text of the instruction."""
    by: str
    """User who gave the instruction."""
    at: float
    """When it was given, in seconds since 1970."""
    interrupt: bool
    """Whether it stopped the command that ran."""
    read_by: tuple[int, ...]
    """The numbers of the attempts that have read it."""


def instruction_views(subtask: SubtaskState) -> tuple[InstructionView, ...]:
    return tuple(_view(subtask, index, each) for index, each in enumerate(subtask.instructions))


def _view(subtask: SubtaskState, index: int, given: Instruction) -> InstructionView:
    readers = tuple(attempt.number for attempt in subtask.attempts if len(attempt.instructions) > index)
    return InstructionView(given.text, given.by, given.at, given.interrupt, readers)


def when_read(state: RunState, id_: SubtaskId, *, interrupt: bool = False) -> str:
    """Which attempt will read an instruction that is given now, and when; for a person."""
    subtask = state.subtasks[id_]
    attempt, worker = subtask.current, state.spec(id_).worker
    later = f"attempt {len(subtask.attempts) + 1} reads it when it starts"
    if attempt is None and subtask.failure is not None:
        return f"{later}; `fleet retry {id_}` starts one now, where nothing else does"
    if attempt is None:
        return later
    if phase(attempt) in {"checking", "landing"}:
        return f"attempt {attempt.number} has finished and is tested; {later}, if there is one"
    if not attempt.working:
        return f"attempt {attempt.number} reads it when it starts"
    if worker in state.policy.programs:
        return f"attempt {attempt.number} is a program, which reads nothing while it runs; {later}, if there is one"
    if interrupt:
        return f"attempt {attempt.number} is interrupted and reads it at once"
    if worker in state.policy.by_turns:
        return f"attempt {attempt.number} reads it once its turn has ended"
    return f"attempt {attempt.number} reads it after the tools that it runs now"


# ---- review view -----------------------------------------------------------------------------------------------------
# What reviews of changes found in a run, what became of it, and how often they were wrong.


LATEST = 50  # findings that are listed


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding of a reviewer. Its texts are untrusted."""

    subtask: SubtaskId
    """Subtask whose change was reviewed."""
    attempt: int
    """Number of the reviewed attempt."""
    file: str
    """The file that it is about."""
    line: int
    """The line in that file."""
    problem: str
    """What is wrong there."""
    outcome: FindingResult | None
    """`fixed`: a later attempt passed without the line. `ignored`: an attempt passed with the line. `reverted`: an
    attempt passed with the line, and a later subtask removed it. Null if the subtask has not passed since."""


@dataclass(frozen=True, slots=True)
class ReviewsView:
    """The reviews of a run."""

    reviews: int
    """How many were made: each vote is one."""
    findings: int
    """Findings that name a line of their change, each once for an attempt."""
    discarded: int
    """Findings that named no line of the change: they count for nothing."""
    fixed: int
    """Findings whose line was gone when the work passed."""
    ignored: int
    """Findings whose line was still there when the work passed, without the reverted ones."""
    reverted: int
    """Findings whose line a later subtask removed after the work had passed with it."""
    false_alarm_rate: float | None
    """The share of `ignored` in all three; null until one of them is known."""
    pending: int
    """Batches of reviews that the models' service works on."""
    latest: tuple[FindingView, ...]
    """The findings about the subtasks that were planned last, fifty at most."""


def reviews_view(state: RunState) -> ReviewsView | None:
    """None if nothing was reviewed."""
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
    """All findings about these attempts at a subtask."""
    return tuple(_review_view(state, id_, each.number, finding) for each in attempts for finding in _findings(each))


def _findings(attempt: Attempt) -> Iterable[Finding]:
    """Each once, whoever found it."""
    return dict.fromkeys(finding for vote in attempt.votes for finding in vote.findings)


def _latest(state: RunState, found: Sequence[tuple[SubtaskId, int, Finding]]) -> tuple[FindingView, ...]:
    return tuple(_review_view(state, *each) for each in found[-LATEST:])


def _review_view(state: RunState, id_: SubtaskId, number: int, finding: Finding) -> FindingView:
    outcome = state.settled.get((id_, number, finding))
    return FindingView(id_, number, finding.file, finding.line, finding.problem, outcome)


# ---- needs -----------------------------------------------------------------------------------------------------------
# What a run needs from a person. Every screen, the report and the metrics ask here; each puts it in its own words.


NeedKind = Literal["resume", "approve", "answer", "budget", "unpause"]
"""What a person has to do: resume it, approve work, answer a question, raise a budget, end a pause."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Subtasks that wait for approval."""

    subtasks: tuple[SubtaskId, ...]
    """In plan order."""
    is_whole_plan: bool
    """Whether they are all that is planned, and nothing was approved before."""
    objections: tuple[str, ...]
    """Why the rules do not approve the first one."""


@dataclass(frozen=True, slots=True)
class Needed:
    """Something that a person has to do."""

    key: str
    """Unique in its run while it is needed: `q:` with the question, or the name of the action that does it."""
    what: NeedKind
    question: QuestionId | None = None
    """The question to answer."""
    approval: Approval | None = None
    """What waits for approval."""
    why: str = ""
    """Which budget is used up."""


def needed(state: RunState, now: float, *, alive: bool) -> tuple[Needed, ...]:
    """The most urgent first; empty if the run needs no one, or has ended."""
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
    """What they are, each kind once."""
    return tuple(dict.fromkeys(need.what for need in needs))
