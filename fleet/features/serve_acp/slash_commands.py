"""What a person may type in a session besides an epic: `/pause`, `/answer q1 TEXT`. Each is the request of a verb."""

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
    """Who decided: the journal says that it was done in an editor."""
    return f"{user()} by acp"


@dataclass(frozen=True, slots=True)
class Command:
    """A word, what it does, and the request that it becomes."""

    description: str
    hint: str
    request: Callable[[RunSnapshot, str], Request] | None
    """From the run and the rest of the line; None: it only looks."""


def _approve(run: RunSnapshot, rest: str) -> Request:
    pending = run.waiting_for_approval
    given = tuple(map(SubtaskId, rest.replace(",", " ").split()))
    ids = given or tuple(each for each in pending if run.spec(each).risk != "high")
    high = [id_ for id_ in ids if run.has_subtask(id_) and run.spec(id_).risk == "high"]
    if high:
        hint = f"`fleet approve {run.run} --only {high[0]}`, or the screen"
        raise UsageError(f"{', '.join(high)}: of high risk, which no editor approves", hint=hint)
    if not ids:
        raise UsageError("nothing waits for an approval that is given here")
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
        raise UsageError(f"there is no subtask {subtask!r}")
    return InstructionGiven(at=time.time(), subtask=subtask, text=_needed(text, "/tell SUBTASK TEXT"), by=by())


def _needed(text: str, usage: str) -> str:
    if not text.strip():
        raise UsageError(f"write {usage}")
    return text.strip()


COMMANDS: dict[str, Command] = {
    "status": Command("Show how the run is doing, and follow it", "", None),
    "approve": Command("Approve the plan, or some of its subtasks", "SUBTASK …", _approve),
    "reject": Command("Reject the plan; the planner revises it", "WHY", _reject),
    "answer": Command("Answer a question", "QUESTION TEXT", _answer),
    "tell": Command("Instruct the agent that works on a subtask", "SUBTASK TEXT", _tell),
    "pause": Command("Start no new agents", "", lambda _run, _rest: Paused(at=time.time(), by=by())),
    "cancel": Command("Stop the run", "", lambda _run, _rest: CancelRequested(at=time.time(), by=by())),
}


def parsed(text: str) -> tuple[Command, str] | None:
    """The command that a person typed, and the rest of the line; None for text that is no command."""
    if not text.startswith(MARK):
        return None
    word, _, rest = text.removeprefix(MARK).partition(" ")
    if word not in COMMANDS:
        raise UsageError(f"there is no command /{word[:40]}", hint=f"they are /{', /'.join(COMMANDS)}")
    return COMMANDS[word], rest.strip()
