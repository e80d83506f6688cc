"""What a run needs from a person, asked in the editor: the approval of a plan as a permission, a question as a form.

An editor may be set to allow whatever it is asked. So what is of high risk is never asked here.
"""

import time
from dataclasses import dataclass
from typing import Literal

from acp import Client
from acp.exceptions import RequestError
from acp.helpers import text_block, tool_content
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)

from fleet.cli import common
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import PlanApproved, PlanRejected, QuestionAnswered
from fleet.core.policy.requests import Request
from fleet.errors import FleetError
from fleet.features.serve_acp.shown import question_text, review_text
from fleet.features.serve_acp.slash_commands import by
from fleet.read.question_view import QuestionView
from fleet.read.run import RunSnapshot
from fleet.runs.run_folder import RunFolder

LONGEST_ANSWER = 20_000
Outcome = Literal["sent", "dismissed"]


@dataclass(frozen=True, slots=True)
class Matter:
    """Something that waits for a person. It is asked once in a turn; what changes is another matter."""

    run: RunSnapshot
    question: QuestionView | None = None
    subtasks: tuple[SubtaskId, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        return (self.question.id,) if self.question else (self.run.plan.version, self.subtasks)


def matters(run: RunSnapshot) -> list[Matter]:
    """Everything that waits for a person and may be asked here, an approval first."""
    if not run.may_ask:
        return []
    here = tuple(id_ for id_ in run.waiting_for_approval if run.spec(id_).risk != "high") if run.plan_waits else ()
    approval = [Matter(run, subtasks=here)] if here else []
    return [*approval, *(Matter(run, each) for each in run.questions.values())]


def only_elsewhere(run: RunSnapshot) -> tuple[SubtaskId, ...]:
    """What waits for an approval that no editor may give."""
    return tuple(id_ for id_ in run.waiting_for_approval if run.spec(id_).risk == "high") if run.plan_waits else ()


@dataclass(frozen=True, slots=True)
class People:
    """The person at the editor of one session."""

    client: Client
    session: str
    folder: RunFolder
    has_forms: bool

    def can_ask(self, matter: Matter) -> bool:
        """Whether the editor has a way to ask this. A question without one is answered with the next prompt."""
        return matter.question is None or self.has_forms or bool(matter.question.options)

    async def ask(self, matter: Matter) -> Outcome:
        """Ask, and send what was decided. An editor that can't ask is like one that dismisses it."""
        try:
            request = await (self._approval(matter) if matter.question is None else self._answer(matter.question))
        except RequestError:
            request = None
        if request is None:
            return "dismissed"
        try:
            common.send_checked(self.folder, request)
        except FleetError:
            return "dismissed"  # it was settled elsewhere meanwhile
        return "sent"

    async def _approval(self, matter: Matter) -> Request | None:
        version, ids = matter.run.plan.version, matter.subtasks
        call = ToolCallUpdate(
            tool_call_id=f"plan-{version}",
            title=f"Approve version {version} of the plan: {', '.join(ids[:5])}{' …' if len(ids) > 5 else ''}",  # noqa: PLR2004
            kind="think",
            status="pending",
            content=[tool_content(text_block(review_text(matter.run, ids)))],
        )
        options = [
            PermissionOption(option_id="approve", name=f"Approve {len(ids)} of the subtasks", kind="allow_once"),
            PermissionOption(option_id="reject", name="Reject: the planner revises the plan", kind="reject_once"),
        ]
        match await self._choice(call, options):
            case "approve":
                return PlanApproved(at=time.time(), version=version, by=by(), subtasks=ids)
            case "reject":
                why = "rejected in the editor, without a reason"
                return PlanRejected(at=time.time(), version=version, by=by(), reason=why, subtasks=ids)
        return None

    async def _answer(self, question: QuestionView) -> Request | None:
        text = await (self._form(question) if self.has_forms else self._options(question))
        if not text or len(text) > LONGEST_ANSWER:
            return None
        return QuestionAnswered(at=time.time(), question=question.id, answer=text, by=by())

    async def _form(self, question: QuestionView) -> str:
        answer = ElicitationStringPropertySchema(type="string", title="Answer", min_length=1)
        schema = ElicitationSchema(properties={"answer": answer}, required=["answer"])
        mode = ElicitationFormSessionMode(mode="form", session_id=self.session, requested_schema=schema)
        reply = await self.client.create_elicitation(question_text(question), mode)
        given = (reply.content or {}).get("answer") if isinstance(reply, AcceptElicitationResponse) else ""
        return given.strip() if isinstance(given, str) else ""

    async def _options(self, question: QuestionView) -> str:
        call = ToolCallUpdate(
            tool_call_id=f"question-{question.id}",
            title=f"Question {question.id}",
            kind="think",
            status="pending",
            content=[tool_content(text_block(question_text(question)))],
        )
        options = [
            PermissionOption(option_id=str(number), name=option[:200], kind="allow_once")
            for number, option in enumerate(question.options)
        ]
        later = PermissionOption(option_id="later", name="Answer in my own words", kind="reject_once")
        chosen = await self._choice(call, [*options, later])
        return question.options[int(chosen)] if chosen.isdigit() and int(chosen) < len(options) else ""

    async def _choice(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str:
        """The option that was chosen; empty if none was."""
        reply = await self.client.request_permission(session_id=self.session, tool_call=call, options=options)
        outcome = reply.outcome
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else ""
