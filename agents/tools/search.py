"""`search`: where a text occurs in the repository, or where a symbol is defined."""

from typing import Literal

from pydantic import Field

from agents.tools.explore import Exploring
from agents.tools.outlines import is_known, outlines
from agents.tools.repo_map import read_all
from agents.tools.tool import Arguments
from fleet.ports import Repository

_SOURCES = 50  # that hold the name and are parsed for its definition


class SearchArguments(Arguments):
    text: str = Field(min_length=1, max_length=1000, description="The text, or the name of the symbol, to look for.")
    pattern: str | None = Field(default=None, description="Only in files that match, such as src/**/*.py.")
    kind: Literal["text", "symbol"] = Field(
        default="text", description="symbol: only where a class, function or type with this very name is defined."
    )


class Search(Exploring[SearchArguments]):
    name = "search"
    description = "Finds the lines of the repository that hold a text, or that define a symbol, as path:line: text."
    takes = SearchArguments

    async def look(self, repository: Repository, asked: SearchArguments) -> str:
        lines = await repository.search(asked.text, asked.pattern)
        if asked.kind == "text":
            return lines
        paths = dict.fromkeys(line.partition(":")[0] for line in lines.splitlines())
        sources = await read_all(repository, [path for path in paths if is_known(path)][:_SOURCES])
        found = await outlines(sources)
        defined = [
            f"{path}:{one.line}: {source.splitlines()[one.line - 1].strip()[:200]}"
            for path, source in sources.items()
            for one in found.get(path, ())
            if asked.text in {one.name, one.name.rpartition(".")[2]}
        ]
        return "\n".join(defined) or "no syntax tree defines it; kind: text finds where it is written"
