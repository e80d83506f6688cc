"""`read_file`: a file of the repository with line numbers, whole or in part."""

from pydantic import Field

from agents.text import numbered
from agents.tools.explore import Exploring
from agents.tools.tool import Arguments, BadInput
from fleet.ports import Repository


class ReadFileArguments(Arguments):
    path: str = Field(min_length=1, description="The path, relative to the repository's root.")
    first_line: int = Field(default=1, ge=1)
    last_line: int | None = Field(default=None, ge=1)


class ReadFile(Exploring[ReadFileArguments]):
    name = "read_file"
    description = "Reads a file of the repository, with line numbers. Give a range of lines for a long one."
    takes = ReadFileArguments

    async def look(self, repository: Repository, asked: ReadFileArguments) -> str:
        if asked.last_line is not None and asked.last_line < asked.first_line:
            raise BadInput("The input does not fit the tool:\n- last_line: is before first_line")
        text = await repository.read_file(asked.path)
        return numbered(text, first=asked.first_line, last=asked.last_line)
