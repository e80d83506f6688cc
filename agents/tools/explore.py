"""What all the planner's read-only tools share: one repository to look into, bounded output, nothing changed."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from agents.models.answer import Block
from agents.text import capped
from agents.tools.schema import plain_schema
from agents.tools.tool import Arguments, Said, arguments
from fleet.ports import Repository

Asked = TypeVar("Asked", bound=Arguments)


class Exploring(Generic[Asked]):
    """A tool that reads. Subclasses say what they are called, what they take, and look."""

    name: str
    description: str
    takes: type[Asked]

    def __init__(self, repository: Repository, *, output_chars: int) -> None:
        self._repository = repository
        self._output_chars = output_chars

    @property
    def declaration(self) -> Block:
        return {"name": self.name, "description": self.description, "input_schema": plain_schema(self.takes)}

    def reads_only(self, raw: Mapping[str, Any]) -> bool:  # noqa: ARG002 - whatever it is asked
        return True

    async def run(self, raw: Mapping[str, Any]) -> Said:
        text = await self.look(self._repository, arguments(self.takes, raw))
        return Said(capped(text, self._output_chars) or "(nothing)")

    async def look(self, repository: Repository, asked: Asked) -> str:
        raise NotImplementedError
