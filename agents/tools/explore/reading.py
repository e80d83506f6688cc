"""`list_files`, `read_file`, `search` and `history`: what a planner may read of the repository."""

from typing import Literal

from pydantic import Field

from agents.base.text import numbered
from agents.tools.explore.outlines import read_outlines
from agents.tools.tool import Arguments, ReadOnlyTool, misfit
from fleet.ports.agents import Repository

_SOURCES = 50  # files with the name that are parsed for its definition


class ListFilesArguments(Arguments):
    pattern: str | None = Field(default=None, description="A pattern such as src/**/*.py; ** crosses folders.")


class ListFiles(ReadOnlyTool[ListFilesArguments]):
    name = "list_files"
    description = "Lists the files of the repository, one path per line."
    takes = ListFilesArguments

    async def look(self, repository: Repository, arguments: ListFilesArguments) -> str:
        return "\n".join(await repository.list_files(arguments.pattern))


class ReadFileArguments(Arguments):
    path: str = Field(min_length=1, description="The path, relative to the repository's root.")
    first_line: int = Field(default=1, ge=1)
    last_line: int | None = Field(default=None, ge=1)


class ReadFile(ReadOnlyTool[ReadFileArguments]):
    name = "read_file"
    description = "Reads a file of the repository, with line numbers. Give a range of lines if it is long."
    takes = ReadFileArguments

    async def look(self, repository: Repository, arguments: ReadFileArguments) -> str:
        if arguments.last_line is not None and arguments.last_line < arguments.first_line:
            raise misfit("last_line: is before first_line")
        text = await repository.read_file(arguments.path)
        return numbered(text, first=arguments.first_line, last=arguments.last_line)


class SearchArguments(Arguments):
    text: str = Field(min_length=1, max_length=1000, description="The text, or the name of the symbol, to look for.")
    pattern: str | None = Field(default=None, description="Only in files that match, such as src/**/*.py.")
    kind: Literal["text", "symbol"] = Field(
        default="text", description="symbol: only where a class, function or type with exactly this name is defined."
    )


class Search(ReadOnlyTool[SearchArguments]):
    name = "search"
    description = "Finds the lines of the repository that contain a text or define a symbol, as path:line: text."
    takes = SearchArguments

    async def look(self, repository: Repository, arguments: SearchArguments) -> str:
        lines = await repository.search(arguments.text, arguments.pattern)
        if arguments.kind == "text":
            return lines
        paths = dict.fromkeys(line.partition(":")[0] for line in lines.splitlines())
        defined = [
            f"{source.path}:{each.line}: {source.text.splitlines()[each.line - 1].strip()[:200]}"
            for source in await read_outlines(repository, paths, limit=_SOURCES)
            for each in source.definitions or ()
            if arguments.text in {each.name, each.name.rpartition(".")[2]}
        ]
        return "\n".join(defined) or "not defined in any source that can be parsed; kind: text finds every occurrence"


class HistoryArguments(Arguments):
    path: str | None = Field(default=None, min_length=1, description="Only commits that changed this path.")
    limit: int = Field(default=20, ge=1, le=200)


class History(ReadOnlyTool[HistoryArguments]):
    name = "history"
    description = "Shows the latest commits, newest first; without a path, also the files that change most often."
    takes = HistoryArguments

    async def look(self, repository: Repository, arguments: HistoryArguments) -> str:
        return await repository.history(arguments.path, arguments.limit)
