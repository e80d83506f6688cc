"""`read_report`: a planner reads all that is known of one subtask."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from agents.base.text import capped
from agents.models.answer import Block
from agents.tools.tool import Arguments, ToolResult, parse_arguments, plain_schema


class ReadReportArguments(Arguments):
    subtask: str = Field(description="The id of a subtask.")


@dataclass(frozen=True, slots=True)
class ReadReport:
    """Reads what the state and the record only quote."""

    read: Callable[[str], Mapping[str, Any] | None]
    output_chars: int
    name: ClassVar = "read_report"
    declaration: ClassVar[Block] = {
        "name": name,
        "description": (
            "A subtask's description, the last report of its worker, and each of its failures with all of its evidence."
        ),
        "input_schema": plain_schema(ReadReportArguments),
    }

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        id_ = parse_arguments(ReadReportArguments, raw).subtask
        known = self.read(id_)
        if known is None:
            return ToolResult(f"There is no subtask {id_!r}.", is_error=True)
        return ToolResult(capped(json.dumps(known, ensure_ascii=False, indent=1, default=str), self.output_chars))


# ---- find subtasks ---------------------------------------------------------------------------------------------------
# `find_subtasks`: a planner looks for subtasks that the state only counts.


class FindSubtasksArguments(Arguments):
    words: str = Field(default="", description="Words that all occur in its id, title, paths or result.")


@dataclass(frozen=True, slots=True)
class FindSubtasks:
    """Finds subtasks, closed ones too, by words; without any, the latest."""

    find: Callable[[str], Sequence[Mapping[str, Any]]]
    output_chars: int
    name: ClassVar = "find_subtasks"
    declaration: ClassVar[Block] = {
        "name": name,
        "description": "The latest subtasks, closed ones too, that hold some words: id, title, status, paths, result.",
        "input_schema": plain_schema(FindSubtasksArguments),
    }

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        found = self.find(parse_arguments(FindSubtasksArguments, raw).words)
        if not found:
            return ToolResult("No subtask holds all of these words.")
        lines = (json.dumps(each, ensure_ascii=False, separators=(",", ":"), default=str) for each in found)
        return ToolResult(capped("\n".join(lines), self.output_chars))
