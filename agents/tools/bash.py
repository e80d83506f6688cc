"""`bash`: a command in the worker's box. Each runs in a fresh shell at the repository's root."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from agents.base.text import capped, redacted
from agents.models.answer import Block
from agents.tools.tool import Arguments, ToolResult, WorkerTool, misfit, parse_arguments


class BashArguments(Arguments):
    command: str | None = Field(default=None, min_length=1, max_length=100_000)
    restart: bool = False


class Bash(WorkerTool):
    """Runs commands in a workspace."""

    name: ClassVar = "bash"
    declaration: ClassVar[Block] = {"type": "bash_20250124", "name": "bash"}

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        arguments = parse_arguments(BashArguments, raw)
        if arguments.command is None:
            if arguments.restart:
                return ToolResult("Every command starts in a fresh shell; there is nothing to restart.")
            raise misfit("command: is missing")
        if "\0" in arguments.command:
            raise misfit("command: contains a NUL character")
        options = self.options
        done = await self.workspace.run(arguments.command, timeout_s=options.command_s, extras=options.extras)
        output = capped(redacted(done.output, options.secrets), options.output_chars).rstrip("\n")
        if done.timed_out:
            ending = f"[stopped after {options.command_s:g} s: it had not finished]"
        else:
            ending = f"[exit code {done.exit_code}]"
        return ToolResult(f"{output}\n{ending}" if output else ending, is_error=done.timed_out)
