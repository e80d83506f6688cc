"""`list_files`: the paths in the repository, all or those that match a pattern."""

from pydantic import Field

from agents.tools.explore import Exploring
from agents.tools.tool import Arguments
from fleet.ports import Repository


class ListFilesArguments(Arguments):
    pattern: str | None = Field(default=None, description="A pattern such as src/**/*.py; ** crosses folders.")


class ListFiles(Exploring[ListFilesArguments]):
    name = "list_files"
    description = "Lists the files of the repository, one path a line."
    takes = ListFilesArguments

    async def look(self, repository: Repository, asked: ListFilesArguments) -> str:
        return "\n".join(await repository.list_files(asked.pattern))
