"""`find_subtasks`: a planner looks for subtasks that the state only counts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from agents.base.text import capped
from agents.models.answer import Block
from agents.tools.schema import plain_schema
from agents.tools.tool import Arguments, ToolResult, parse_arguments


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
