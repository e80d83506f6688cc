"""`bash`: a command in the worker's box. Each is a fresh shell at the repository's root, so nothing hangs over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from agents.models.answer import Block
from agents.text import capped, hidden
from agents.tools.tool import Arguments, BadInput, Said, arguments
from fleet.ports import NO_EXTRAS, Desk, Extras


class BashArguments(Arguments):
    command: str | None = Field(default=None, min_length=1, max_length=100_000)
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Boxed:
    """What the box of these commands has besides, and which values of it stay in there."""

    extras: Extras = NO_EXTRAS
    secrets: tuple[str, ...] = ()


class Bash:
    """Runs commands at a desk."""

    name = "bash"
    declaration: Block = {"type": "bash_20250124", "name": "bash"}  # noqa: RUF012 - the wire's own name, never changed

    def __init__(self, desk: Desk, *, timeout_s: float, output_chars: int, boxed: Boxed | None = None) -> None:
        self._desk = desk
        self._timeout_s = timeout_s
        self._output_chars = output_chars
        self._boxed = boxed or Boxed()

    def reads_only(self, raw: Mapping[str, Any]) -> bool:  # noqa: ARG002 - nobody knows what a command changes
        return False

    async def run(self, raw: Mapping[str, Any]) -> Said:
        asked = arguments(BashArguments, raw)
        if asked.command is None:
            if asked.restart:
                return Said("Every command starts in a fresh shell; there is nothing to restart.")
            raise BadInput("The input does not fit the tool:\n- command: is missing")
        if "\0" in asked.command:
            raise BadInput("The input does not fit the tool:\n- command: holds a NUL character")
        done = await self._desk.run(asked.command, timeout_s=self._timeout_s, extras=self._boxed.extras)
        output = capped(hidden(done.output, self._boxed.secrets), self._output_chars).rstrip("\n")
        if done.timed_out:
            ending = f"[stopped after {self._timeout_s:g} s: it had not finished]"
        else:
            ending = f"[exit code {done.exit_code}]"
        return Said(f"{output}\n{ending}" if output else ending, is_error=done.timed_out)
