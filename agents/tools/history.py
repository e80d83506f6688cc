"""`history`: what was done in the repository lately, all of it or to one path."""

from pydantic import Field

from agents.tools.explore import Exploring
from agents.tools.tool import Arguments
from fleet.ports import Repository


class HistoryArguments(Arguments):
    path: str | None = Field(default=None, min_length=1, description="Only commits that changed this path.")
    limit: int = Field(default=20, ge=1, le=200)


class History(Exploring[HistoryArguments]):
    name = "history"
    description = "Shows the latest commits, newest first, and without a path the files that change most often."
    takes = HistoryArguments

    async def look(self, repository: Repository, asked: HistoryArguments) -> str:
        return await repository.history(asked.path, asked.limit)
