"""What an editor sees of a run: its plan as a list, its events, how it ended. It sends nothing."""

from collections.abc import Sequence

from acp.helpers import plan_entry
from acp.schema import (
    AvailableCommand,
    EmbeddedResourceContentBlock,
    PlanEntry,
    PlanEntryStatus,
    ResourceContentBlock,
    SessionInfo,
    TextContentBlock,
    TextResourceContents,
    UnstructuredCommandInput,
)

from dashboards.text.plan_review import review_lines
from dashboards.text.safe import safe, safe_block
from dashboards.text.summary import summary_lines
from fleet.core.base.ids import SubtaskId
from fleet.errors import UsageError
from fleet.features.serve_acp.slash_commands import COMMANDS
from fleet.read.question_view import QuestionView
from fleet.read.run import RunSnapshot
from fleet.read.run_view import SubtaskStatus
from fleet.runs.run_folder import FirstFact

TITLE = 200
_DONE: frozenset[SubtaskStatus] = frozenset({"merged", "split", "dropped"})
_UNDERWAY: frozenset[SubtaskStatus] = frozenset({"running", "verifying", "landing"})
Block = object
"""A block of a prompt, of whatever kind."""


def plan_entries(run: RunSnapshot) -> list[PlanEntry]:
    """The plan as it is now. Before there is one, planning is all there is to do."""
    if not run.plan.subtasks:
        return [plan_entry("Plan the epic", status="completed" if run.figures.is_over else "in_progress")]
    entries = []
    for id_, status in run.statuses.items():
        spec = run.spec(id_)
        mark = "" if status in {"merged", "waiting", "ready", *_UNDERWAY} else f" ({status})"
        title = f"{safe(id_)}: {safe(spec.title, limit=TITLE)}{mark}"
        entries.append(plan_entry(title, priority="high" if spec.risk == "high" else "medium", status=_status(status)))
    return entries


def _status(status: SubtaskStatus) -> PlanEntryStatus:
    if status in _DONE:
        return "completed"
    return "in_progress" if status in _UNDERWAY else "pending"


def ending_text(run: RunSnapshot) -> str:
    """How a run is or has ended, and the commands that take its result."""
    return as_code("\n".join(summary_lines(run)))


def review_text(run: RunSnapshot, ids: Sequence[SubtaskId]) -> str:
    """What a person reads before an approval."""
    return as_code("\n".join(review_lines(run.review, ids)))


def question_text(question: QuestionView) -> str:
    options = (
        f"\n\nFor example: {' | '.join(safe(each, limit=300) for each in question.options)}" if question.options else ""
    )
    return f"{safe(question.id)}: {safe_block(question.question)}{options}"


def info_of(run: FirstFact, cwd: str) -> SessionInfo:
    """A run as a session in an editor's list."""
    goal = run.state.goal if run.state is not None else ""
    title = safe(goal.strip().split("\n", 1)[0], limit=TITLE)
    return SessionInfo(session_id=run.folder.run, cwd=cwd, title=title)


def offered_commands() -> list[AvailableCommand]:
    """What may be typed, as an editor offers it."""
    return [
        AvailableCommand(
            name=name,
            description=command.description,
            input=UnstructuredCommandInput(hint=command.hint) if command.hint else None,
        )
        for name, command in COMMANDS.items()
    ]


def typed_text(prompt: Sequence[Block]) -> str:
    """What the person typed: files that they attached are no part of it."""
    return "\n\n".join(block.text for block in prompt if isinstance(block, TextContentBlock)).strip()


def epic_text(prompt: Sequence[Block]) -> str:
    """The prompt as an epic, with what is attached to it. Raises `UsageError` for what is no text."""
    parts = []
    for block in prompt:
        if isinstance(block, TextContentBlock):
            parts.append(block.text)
        elif isinstance(block, ResourceContentBlock):
            parts.append(f"See {block.uri}")
        elif isinstance(block, EmbeddedResourceContentBlock) and isinstance(block.resource, TextResourceContents):
            parts.append(f"Attached, {block.resource.uri}:\n\n{as_code(block.resource.text)}")
        else:
            raise UsageError("an epic is text", hint="describe the picture or the sound in words")
    return "\n\n".join(parts)


# ---- text ------------------------------------------------------------------------------------------------------------
# Text as an editor shows it: Markdown, in which texts of others stay what they are.


LINES = 400


def as_code(text: str) -> str:
    """A block that nothing inside can close."""
    shown = safe_block(text, lines=LINES)
    longest = max((len(run) for run in _runs_of_ticks(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{shown}\n{fence}"


def _runs_of_ticks(text: str) -> list[str]:
    return "".join(char if char == "`" else " " for char in text).split()
