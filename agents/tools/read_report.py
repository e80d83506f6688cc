"""`read_report`: a planner reads all that is known of one subtask."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from agents.base.text import capped
from agents.models.answer import Block
from agents.tools.schema import plain_schema
from agents.tools.tool import Arguments, ToolResult, parse_arguments


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
