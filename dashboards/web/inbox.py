"""The inbox: pending requests to a person over all runs, and answered questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from dashboards.subtask_map import Need, needs_at
from dashboards.web.shared_runs import Reader, Shown, repository_name
from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Plan, Subtask
from fleet.core.plans.revision import Drop, Revision, revision_between
from fleet.core.policy.requests import REQUEST, Request
from fleet.read.figures import RunFigures
from fleet.read.follow import FollowedRun
from fleet.read.question_view import QuestionView
from fleet.read.run import RunSnapshot

ANSWERED = 20
MOST_APPROVALS = 100


@dataclass(frozen=True, slots=True)
class ApprovalForm:
    """A subtask that waits for approval."""

    spec: Subtask
    why: Sequence[str]


@dataclass(frozen=True, slots=True)
class Item:
    """A pending request, with the details for a decision."""

    run: str
    repository: str
    need: Need
    question: QuestionView | None
    asked_s: float
    """Seconds since it was asked."""
    version: int
    approvals: Sequence[ApprovalForm]
    more_approvals: int


def items_of(run: FollowedRun) -> list[Item]:
    snapshot = run.snapshot
    return [] if snapshot is None else [_item(run, snapshot, need) for need in needs_at(run, snapshot)]


async def inbox_page(reader: Reader) -> Shown:
    runs = reader.runs.latest()
    items = [item for run in runs for item in items_of(run)]
    answered = [
        (run.feed.run, question)
        for run in runs
        if (snapshot := run.snapshot) is not None
        for question in snapshot.answered_questions()
    ]
    parts = {
        "inbox": reader.part("needs", items=items, with_run=True, empty="Nothing needs you."),
        "answered": reader.part("answered", answered=answered[-ANSWERED:]),
    }
    return Shown("Inbox", parts)


def _item(run: FollowedRun, snapshot: RunSnapshot, need: Need) -> Item:
    question = snapshot.questions.get(QuestionId(need.key.removeprefix("q:"))) if need.key.startswith("q:") else None
    waiting = snapshot.waiting_for_approval if need.key == "approve" else ()
    shown = [ApprovalForm(snapshot.spec(id_), snapshot.objections_to(id_)) for id_ in waiting[:MOST_APPROVALS]]
    return Item(
        run=run.feed.run,
        repository=repository_name(run),
        need=need,
        question=question,
        asked_s=snapshot.now - question.asked_at if question is not None else 0.0,
        version=snapshot.plan.version,
        approvals=shown,
        more_approvals=len(waiting) - len(shown),
    )


# ---- board -----------------------------------------------------------------------------------------------------------
# All runs in four lanes, with their pending requests. The lane follows from the state of the run.


Lane = Literal["needs", "working", "landing", "done"]
LANES: dict[Lane, str] = {"needs": "Needs you", "working": "Working", "landing": "Landing", "done": "Done"}


@dataclass(frozen=True, slots=True)
class Card:
    """A run on the board."""

    run: str
    repository: str
    word: str
    lane: Lane
    needs: list[Need]
    figures: RunFigures


async def board_page(reader: Reader) -> Shown:
    cards = [card for run in reader.runs.latest() if (card := _card(run)) is not None]
    loading = sum(not run.loaded for run in reader.runs.latest())
    parts = {
        f"lane-{lane}": reader.part(
            "lane", title=title, lane=lane, cards=[card for card in cards if card.lane == lane], loading=loading
        )
        for lane, title in LANES.items()
    }
    return Shown("Runs", parts)


def _card(run: FollowedRun) -> Card | None:
    snapshot = run.snapshot
    if snapshot is None or not run.loaded:
        return None
    waiting = needs_at(run, snapshot)
    return Card(
        run=run.feed.run,
        repository=repository_name(run),
        word=snapshot.word,
        lane=_lane(snapshot, waiting),
        needs=waiting,
        figures=snapshot.figures,
    )


def _lane(snapshot: RunSnapshot, waiting: list[Need]) -> Lane:
    if waiting:
        return "needs"
    if snapshot.figures.is_over:
        return "done"
    is_landing = bool(snapshot.queue.entries or snapshot.queue.testing)
    return "landing" if is_landing and not snapshot.figures.working and not snapshot.is_planning else "working"


# ---- decisions -------------------------------------------------------------------------------------------------------
# Decisions in the browser, as requests to the run. All of them are also available on the command line.


FIELDS: Mapping[str, frozenset[str]] = {
    "plan_approved": frozenset({"version", "subtasks"}),
    "plan_rejected": frozenset({"version", "reason", "subtasks"}),
    "question_answered": frozenset({"question", "answer"}),
    "retry_requested": frozenset({"subtask", "guidance"}),
    "instruction_given": frozenset({"subtask", "text", "interrupt"}),
    "paused": frozenset(),
    "unpaused": frozenset(),
    "drain_requested": frozenset(),
    "cancel_requested": frozenset(),
    "limits_changed": frozenset({"workers", "budget_dollars", "budget_minutes", "budget_tokens", "budget_attempts"}),
}
"""The requests that a browser may send, with the fields that it may set. The server adds time and user."""
MOST_COMMENTS, LONGEST_COMMENT = 200, 4_000


class LineComment(BaseModel):
    """A comment on a line of a diff."""

    path: str = Field(max_length=1_000)
    side: str = Field(pattern="^(old|new)$")
    line: int = Field(ge=1)
    text: str = Field(min_length=1, max_length=LONGEST_COMMENT)


class Comments(BaseModel):
    """Comments on the change of an attempt, sent together."""

    attempt: int = Field(ge=1)
    comments: tuple[LineComment, ...] = Field(max_length=MOST_COMMENTS)
    text: str = Field(default="", max_length=LONGEST_COMMENT)


def decide(run: FollowedRun, snapshot: RunSnapshot, kind: str, given: Mapping[str, Any], by: str) -> str | None:
    """Send a request from a browser to the run. Return an error message if it is not valid."""
    if kind == "resume":
        return "the run is already running" if run.alive else run.feed.resume()
    if kind == "drop":
        return _drop(run, snapshot, SubtaskId(str(given.get("subtask", ""))), str(given.get("why", "")), by)
    if kind == "plan":
        return _edit(run, snapshot, str(given.get("plan", "")), given.get("version"), by)
    if kind not in FIELDS:
        return f"unknown request {kind!r}"
    said = {name: value for name, value in given.items() if name in FIELDS[kind] and value not in ("", None, [])}
    if isinstance(said.get("subtasks"), str):
        said["subtasks"] = [said["subtasks"]]
    said.setdefault("guidance", "") if kind == "retry_requested" else None
    try:
        request = REQUEST.validate_python({**said, "kind": kind, "at": run.clock(), "by": by})
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
    return _send(run, snapshot, request)


def comment(run: FollowedRun, snapshot: RunSnapshot, subtask: SubtaskId, given: Any, by: str) -> str | None:
    """Send line comments to the running attempt, or retry with them. Return an error message if that is not valid."""
    try:
        sent = Comments.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if sent.attempt > (snapshot.attempts_at(subtask) if snapshot.has_subtask(subtask) else 0):
        return f"no attempt {sent.attempt} of {subtask}"
    if not sent.comments and not sent.text.strip():
        return "no comments to send"
    commit = snapshot.attempt(subtask, sent.attempt).commit or ""
    lines = [f"Review comments on attempt {sent.attempt}{f', commit {commit[:12]}' if commit else ''}:"]
    lines += [sent.text.strip()] if sent.text.strip() else []
    lines += [f"- {each.path}:{each.line} ({each.side} side): {each.text.strip()}" for each in sent.comments]
    said = "\n".join(lines)
    retried = f.RetryRequested(at=run.clock(), subtask=subtask, guidance=said, by=by)
    if snapshot.problem_of(retried) is None:
        return _send(run, snapshot, retried)
    return _send(run, snapshot, f.InstructionGiven(at=run.clock(), subtask=subtask, text=said, by=by))


def _send(run: FollowedRun, snapshot: RunSnapshot, request: Request) -> str | None:
    problem = snapshot.problem_of(request)
    if problem is None:
        run.feed.ask(request)
    return problem


def _drop(run: FollowedRun, snapshot: RunSnapshot, subtask: SubtaskId, why: str, by: str) -> str | None:
    if not why.strip():
        return "a reason is required"
    revision = Revision(assessment=f"dropped by {by}: {why.strip()}", drop=(Drop(id=subtask, why=why.strip()),))
    return _send(run, snapshot, f.PlanRevised(at=run.clock(), call=None, by=by, revision=revision))


def _edit(run: FollowedRun, snapshot: RunSnapshot, text: str, version: object, by: str) -> str | None:
    if str(version) != str(snapshot.plan.version):
        return f"the plan has changed since you opened it: it is at version {snapshot.plan.version}, not {version}"
    with TemporaryDirectory(prefix="fleet-plan-") as folder:
        path = Path(folder) / "plan.toml"
        path.write_text(text.replace("\r\n", "\n"), encoding="utf-8")
        edited = run.feed.read_plan(path)
    if not isinstance(edited, Plan):
        return edited
    revision = revision_between(snapshot.plan, edited, why=f"edited by {by}", without=snapshot.split_or_dropped)
    if isinstance(revision, str):
        return revision
    if not revision.changes_plan:
        return "the plan is unchanged"
    return _send(run, snapshot, f.PlanRevised(at=run.clock(), call=None, by=by, revision=revision))


def plan_text(run: FollowedRun, snapshot: RunSnapshot) -> str:
    """The text of the plan file."""
    with TemporaryDirectory(prefix="fleet-plan-") as folder:
        path = Path(folder) / "plan.toml"
        run.feed.write_plan(snapshot.plan, path)
        return path.read_text(encoding="utf-8")
