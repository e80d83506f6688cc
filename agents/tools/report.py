"""`report`: ends a worker's attempt. A report is a claim that the manager checks."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue

from agents.models.answer import Block
from agents.models.text import capped
from agents.tools.tool import Arguments, ReportDone, ToolResult, misfit, parse_arguments, plain_schema, strict_schema
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import Report

_LONGEST_TEXT = 8_000  # characters of one text in a report, because the planner reads many
_LONGEST_RESULT = 20_000  # characters of the result as JSON
_MOST_ITEMS = 50


class ReportedError(Arguments):
    """Why the subtask failed."""

    kind: Literal["too_complex", "ambiguous", "tool", "environment", "conflict", "other"]
    message: str


class ReportArguments(Arguments):
    """The arguments of `report`."""

    status: Literal["done", "failed", "blocked"] = Field(
        description="done: the acceptance commands pass. failed: you tried without success. blocked: facts are missing."
    )
    summary: str = Field(min_length=1, description="Your changes and the resulting state, in a few sentences.")
    result: dict[str, JsonValue] = Field(default={}, description="Facts that others who build on this need to know.")
    error: ReportedError | None = Field(default=None, description="With failed or blocked: the reason.")
    recommendations: tuple[str, ...] = Field(default=(), description="Recommendations for the planner.")
    needs: tuple[str, ...] = Field(default=(), description="With blocked: the information you need.")
    discovered: tuple[str, ...] = Field(default=(), description="Follow-up work that you noticed and did not do.")


class _Handover(Arguments):
    """The result in strict mode, which does not support free-form objects."""

    interface: str | None = Field(default=None, description="Names, signatures and paths that others will use.")
    verified: str | None = Field(default=None, description="The commands you ran last, and their results.")
    notes: str | None = Field(default=None, description="Anything else they must know.")


def _schema() -> dict[str, Any]:
    schema = strict_schema(ReportArguments)
    handover = {**strict_schema(_Handover), "description": "Facts that others who build on this need to know."}
    return {**schema, "properties": {**schema["properties"], "result": handover}, "required": ["status", "summary"]}


class ReportTool:
    """Ends an attempt."""

    name: ClassVar = "report"

    declaration: ClassVar[Block] = {
        "name": name,
        "description": (
            "Ends the attempt. Call it once, at the very end. The manager runs the acceptance commands itself, so "
            "an honest `failed` or `blocked` with a reason is worth more than a hopeful `done`."
        ),
        "strict": True,
        "input_schema": _schema(),
    }

    async def run(self, raw: Mapping[str, Any]) -> ReportDone[Report]:
        return ReportDone(read_report(raw))


def read_report(raw: Mapping[str, Any]) -> Report:
    """Parse a report and check its limits. Raises `ToolInputError` with every problem."""
    report = parse_arguments(ReportArguments, raw)
    if len(json.dumps(report.result)) > _LONGEST_RESULT:
        raise misfit(f"result is longer than {_LONGEST_RESULT} characters")
    return Report(
        status=report.status,
        summary=capped(report.summary, _LONGEST_TEXT),
        result=report.result,
        error_kind=report.error.kind if report.error else None,
        error_message=capped(report.error.message, _LONGEST_TEXT) if report.error else None,
        recommendations=_capped_all(report.recommendations),
        needs=_capped_all(report.needs),
        discovered=_capped_all(report.discovered),
    )


def _capped_all(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(capped(text, _LONGEST_TEXT) for text in texts[:_MOST_ITEMS])


# ---- read report -----------------------------------------------------------------------------------------------------
# `read_report`: shows a planner all details of a subtask.


class ReadReportArguments(Arguments):
    subtask: SubtaskId = Field(description="The id of a subtask.")


@dataclass(frozen=True, slots=True)
class ReadReport:
    """Returns the full texts that the state and the record only quote."""

    read: Callable[[SubtaskId], Mapping[str, Any] | None]
    output_chars: int
    name: ClassVar = "read_report"
    declaration: ClassVar[Block] = {
        "name": name,
        "description": (
            "Returns a subtask's description, the last report of its worker, and its failures with all evidence."
        ),
        "input_schema": plain_schema(ReadReportArguments),
    }

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        id_ = parse_arguments(ReadReportArguments, raw).subtask
        known = self.read(id_)
        if known is None:
            return ToolResult(f"Unknown subtask {id_!r}.", is_error=True)
        return ToolResult(capped(json.dumps(known, ensure_ascii=False, indent=1, default=str), self.output_chars))


# ---- find subtasks ---------------------------------------------------------------------------------------------------
# `find_subtasks`: finds subtasks that the state only counts.


class FindSubtasksArguments(Arguments):
    words: str = Field(default="", description="Words that must all occur in its id, title, paths or result.")


@dataclass(frozen=True, slots=True)
class FindSubtasks:
    """Finds subtasks by words, including closed ones. Without words, returns the latest."""

    find: Callable[[str], Sequence[Mapping[str, Any]]]
    output_chars: int
    name: ClassVar = "find_subtasks"
    declaration: ClassVar[Block] = {
        "name": name,
        "description": "Finds the latest subtasks with all words, closed ones too: id, title, status, paths, result.",
        "input_schema": plain_schema(FindSubtasksArguments),
    }

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        found = self.find(parse_arguments(FindSubtasksArguments, raw).words)
        if not found:
            return ToolResult("No subtask contains all of these words.")
        lines = (json.dumps(each, ensure_ascii=False, separators=(",", ":"), default=str) for each in found)
        return ToolResult(capped("\n".join(lines), self.output_chars))
