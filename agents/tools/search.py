"""`search`: where a text occurs in the repository."""

from pydantic import Field

from agents.tools.explore import Exploring
from agents.tools.tool import Arguments
from fleet.ports import Repository


class SearchArguments(Arguments):
    text: str = Field(min_length=1, max_length=1000, description="The text to look for.")
    pattern: str | None = Field(default=None, description="Only in files that match, such as src/**/*.py.")


class Search(Exploring[SearchArguments]):
    name = "search"
    description = "Finds the lines of the repository that hold a text, as path:line: text."
    takes = SearchArguments

    async def look(self, repository: Repository, asked: SearchArguments) -> str:
        return await repository.search(asked.text, asked.pattern)
