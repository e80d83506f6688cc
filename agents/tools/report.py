"""`report`: how a worker ends its attempt, in the shape of the model protocol. What it says is a claim."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue

from agents.models.answer import Block
from agents.text import capped
from agents.tools.schema import strict_schema
from agents.tools.tool import Arguments, BadInput, Ended, arguments
from fleet.core.facts import Report

_LONGEST_TEXT = 8_000  # characters of one text in a report; it is read by the planner, among many
_LONGEST_RESULT = 20_000  # characters of the result as JSON
_MOST_ITEMS = 50


class ReportedError(Arguments):
    """Why it did not work."""

    kind: Literal["too_complex", "ambiguous", "tool", "environment", "conflict", "other"]
    message: str


class ReportArguments(Arguments):
    """What `report` takes."""

    status: Literal["done", "failed", "blocked"] = Field(
        description="done: the acceptance commands pass. failed: you tried and could not. blocked: facts are missing."
    )
    summary: str = Field(min_length=1, description="What you did and what is true now, in a few sentences.")
    result: dict[str, JsonValue] = Field(default={}, description="What those who build on this need to know.")
    error: ReportedError | None = Field(default=None, description="With failed or blocked: why.")
    recommendations: tuple[str, ...] = Field(default=(), description="What the planner should do about it.")
    needs: tuple[str, ...] = Field(default=(), description="With blocked: the information you need.")
    discovered: tuple[str, ...] = Field(default=(), description="Follow-up work you saw and did not do.")


class _Handover(Arguments):
    """The result as strict mode can ask for it; a free-form object it can't."""

    interface: str | None = Field(default=None, description="Names, signatures and paths others will use.")
    verified: str | None = Field(default=None, description="The commands you ran last, and how they ended.")
    notes: str | None = Field(default=None, description="Anything else they must know.")


def _schema() -> dict[str, Any]:
    schema = strict_schema(ReportArguments)
    handover = {**strict_schema(_Handover), "description": "What those who build on this need to know."}
    return {**schema, "properties": {**schema["properties"], "result": handover}, "required": ["status", "summary"]}


class ReportTool:
    """Ends an attempt."""

    name = "report"

    @property
    def declaration(self) -> Block:
        return {
            "name": self.name,
            "description": (
                "Ends the attempt. Call it once, as the last thing you do. The manager runs the acceptance commands "
                "itself, so an honest `failed` or `blocked` with a reason is worth more than a hopeful `done`."
            ),
            "strict": True,
            "input_schema": _schema(),
        }

    def reads_only(self, raw: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it ends everything
        return False

    async def run(self, raw: Mapping[str, Any]) -> Ended[Report]:
        return Ended(read_report(raw))


def read_report(raw: Mapping[str, Any]) -> Report:
    """What was handed in, within bounds. Raises `BadInput` with every problem."""
    said = arguments(ReportArguments, raw)
    if len(json.dumps(said.result)) > _LONGEST_RESULT:
        raise BadInput(f"The input does not fit the tool:\n- result: is longer than {_LONGEST_RESULT} characters")
    return Report(
        status=said.status,
        summary=capped(said.summary, _LONGEST_TEXT),
        result=said.result,
        error_kind=said.error.kind if said.error else None,
        error_message=capped(said.error.message, _LONGEST_TEXT) if said.error else None,
        recommendations=_capped_all(said.recommendations),
        needs=_capped_all(said.needs),
        discovered=_capped_all(said.discovered),
    )


def _capped_all(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(capped(text, _LONGEST_TEXT) for text in texts[:_MOST_ITEMS])
