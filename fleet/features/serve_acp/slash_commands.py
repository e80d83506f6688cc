"""The slash commands of a session, such as `/pause` and `/answer q1 TEXT`. Each sends the same request as a verb."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.config.environment import user
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import (
    CancelRequested,
    InstructionGiven,
    Paused,
    PlanApproved,
    PlanRejected,
    QuestionAnswered,
)
from fleet.core.policy.requests import Request
from fleet.errors import UsageError
from fleet.read.run import RunSnapshot

MARK = "/"


def by() -> str:
    """Return the name that the journal records for decisions made in an editor."""
    return f"{user()} by acp"


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command and the request that it sends."""

    description: str
    hint: str
    request: Callable[[RunSnapshot, str], Request] | None
    """Makes the request from the run and the rest of the line; None for read-only commands."""


def _approve(run: RunSnapshot, rest: str) -> Request:
    pending = run.waiting_for_approval
    given = tuple(map(SubtaskId, rest.replace(",", " ").split()))
    ids = given or tuple(each for each in pending if run.spec(each).risk != "high")
    high = [id_ for id_ in ids if run.has_subtask(id_) and run.spec(id_).risk == "high"]
    if high:
        hint = f"run `fleet approve {run.run} --only {high[0]}`"
        raise UsageError(f"{', '.join(high)}: high-risk subtasks can't be approved in an editor", hint=hint)
    if not ids:
        raise UsageError("no pending subtask can be approved in an editor")
    return PlanApproved(at=time.time(), version=run.plan.version, by=by(), subtasks=ids)


def _reject(run: RunSnapshot, rest: str) -> Request:
    return PlanRejected(at=time.time(), version=run.plan.version, by=by(), reason=_needed(rest, "/reject WHY"))


def _answer(run: RunSnapshot, rest: str) -> Request:
    question, _, text = _needed(rest, "/answer QUESTION TEXT").partition(" ")
    return QuestionAnswered(
        at=time.time(), question=run.question_named(question), answer=_needed(text, "/answer QUESTION TEXT"), by=by()
    )


def _tell(run: RunSnapshot, rest: str) -> Request:
    subtask, _, text = _needed(rest, "/tell SUBTASK TEXT").partition(" ")
    if not run.has_subtask(subtask):
        raise UsageError(f"unknown subtask {subtask!r}")
    return InstructionGiven(at=time.time(), subtask=subtask, text=_needed(text, "/tell SUBTASK TEXT"), by=by())


def _needed(text: str, usage: str) -> str:
    if not text.strip():
        raise UsageError("arguments are missing", hint=f"write {usage}")
    return text.strip()


COMMANDS: dict[str, SlashCommand] = {
    "status": SlashCommand("Show the status of the run and follow it", "", None),
    "approve": SlashCommand("Approve the plan or some of its subtasks", "SUBTASK …", _approve),
    "reject": SlashCommand("Reject the plan and have the planner revise it", "WHY", _reject),
    "answer": SlashCommand("Answer a question", "QUESTION TEXT", _answer),
    "tell": SlashCommand("Send an instruction to the agent of a subtask", "SUBTASK TEXT", _tell),
    "pause": SlashCommand(
        "Pause the run: start no new agents", "", lambda _run, _rest: Paused(at=time.time(), by=by())
    ),
    "cancel": SlashCommand("Stop the run", "", lambda _run, _rest: CancelRequested(at=time.time(), by=by())),
}


def parsed(text: str) -> tuple[SlashCommand, str] | None:
    """Return the typed command and the rest of the line; None if the text is not a command."""
    if not text.startswith(MARK):
        return None
    word, _, rest = text.removeprefix(MARK).partition(" ")
    if word not in COMMANDS:
        raise UsageError(f"unknown command /{word[:40]}", hint=f"available commands: /{', /'.join(COMMANDS)}")
    return COMMANDS[word], rest.strip()
