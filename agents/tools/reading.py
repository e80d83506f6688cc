"""`list_files`, `read_file`, `search` and `history`: the planner's read-only tools for the repository."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from subprocess import DEVNULL, PIPE
from typing import Literal

from anyio import to_thread
from pydantic import Field

from agents.models.text import numbered
from agents.tools.outliner import LANGUAGES
from agents.tools.outliner import SECONDS as PROCESS_SECONDS
from agents.tools.tool import Arguments, ReadOnlyTool, misfit
from fleet.core.base.output import parse_json
from fleet.core.base.paths import matches
from fleet.ports.agents import PlannerRepository, WorkspaceError

# ---- outlines --------------------------------------------------------------------------------------------------------
# Definitions in sources. A separate process parses them, because it may crash. See `outliner.py`.


PROGRAM = Path(__file__).with_name("outliner.py")
SECONDS = PROCESS_SECONDS + 5.0  # by then it has exited
CRASHES = 3  # after each, the source that crashed the parser is skipped
LARGEST = 200_000  # characters of the largest source that is parsed


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a source file."""

    name: str
    form: str
    """`()` for a callable."""
    line: int
    owner: int
    """The index of the definition around it, or -1."""


Outlines = dict[str, tuple[Definition, ...]]


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file in a language that has a grammar."""

    path: str
    text: str
    definitions: tuple[Definition, ...] | None
    """The definitions; None if the file could not be parsed."""


def is_source(path: str) -> bool:
    """Whether a grammar for this file exists."""
    return PurePosixPath(path).suffix.lower() in LANGUAGES


async def read_outlines(repository: PlannerRepository, paths: Iterable[str], *, limit: int) -> list[FileSource]:
    """Read the first `limit` sources among `paths`. Unreadable ones are skipped."""
    texts: dict[str, str] = {}
    for path in [path for path in paths if is_source(path)][:limit]:
        try:
            texts[path] = await repository.read_file(path)
        except WorkspaceError:
            continue
    parsed = await parse_sources(texts)
    return [FileSource(path, text, parsed.get(path)) for path, text in texts.items()]


async def parse_sources(texts: Mapping[str, str], *, program: Path = PROGRAM) -> Outlines:
    """Parse sources in a separate process. Those that could not be parsed are missing from the result."""
    parseable = {path: text for path, text in texts.items() if len(text) <= LARGEST}
    return await to_thread.run_sync(_parse_all, parseable, program, abandon_on_cancel=True)  # the process exits soon


def _parse_all(remaining: dict[str, str], program: Path) -> Outlines:
    parsed: Outlines = {}
    for _ in range(1 + CRASHES):
        if not remaining:
            break
        parsed |= _parse(remaining, program)
        remaining = {path: text for path, text in remaining.items() if path not in parsed}
        remaining.pop(next(iter(remaining), ""), None)  # results are in order, so it crashed at the first missing one
    return parsed


def _parse(sources: Mapping[str, str], program: Path) -> Outlines:
    """Return the definitions that one process finds before it exits or crashes."""
    command = [sys.executable, "-I", "-B", str(program)]
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    with subprocess.Popen(
        command, env=environment, cwd="/", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(json.dumps(sources).encode("utf-8", "replace"), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    lines = (parse_json(line) for line in output.splitlines(keepends=True) if line.endswith(b"\n"))
    return {path: tuple(Definition(*each) for each in definitions) for path, definitions in lines}


# ---- reading ---------------------------------------------------------------------------------------------------------


_SOURCES = 50  # files to parse for the definition of a name


class ListFilesArguments(Arguments):
    pattern: str | None = Field(default=None, description="A pattern such as src/**/*.py; ** crosses folders.")


class ListFiles(ReadOnlyTool[ListFilesArguments]):
    name = "list_files"
    description = "Lists the files of the repository, one path per line."
    takes = ListFilesArguments

    async def look(self, repository: PlannerRepository, arguments: ListFilesArguments) -> str:
        return "\n".join(await repository.list_files(arguments.pattern))


class ReadFileArguments(Arguments):
    path: str = Field(min_length=1, description="The path, relative to the repository's root.")
    first_line: int = Field(default=1, ge=1)
    last_line: int | None = Field(default=None, ge=1)


class ReadFile(ReadOnlyTool[ReadFileArguments]):
    name = "read_file"
    description = "Reads a file of the repository, with line numbers. Give a range of lines if it is long."
    takes = ReadFileArguments

    async def look(self, repository: PlannerRepository, arguments: ReadFileArguments) -> str:
        if arguments.last_line is not None and arguments.last_line < arguments.first_line:
            raise misfit("last_line is before first_line")
        text = await repository.read_file(arguments.path)
        return numbered(text, first=arguments.first_line, last=arguments.last_line)


class SearchArguments(Arguments):
    text: str = Field(min_length=1, max_length=1000, description="The text or the symbol name to search for.")
    pattern: str | None = Field(default=None, description="Only in files that match, such as src/**/*.py.")
    kind: Literal["text", "symbol"] = Field(
        default="text", description="symbol: only definitions of a class, function or type with exactly this name."
    )


class Search(ReadOnlyTool[SearchArguments]):
    name = "search"
    description = "Finds the lines of the repository that contain a text or define a symbol, as path:line: text."
    takes = SearchArguments

    async def look(self, repository: PlannerRepository, arguments: SearchArguments) -> str:
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
        return (
            "\n".join(defined)
            or "No definition found in the sources that can be parsed. Use kind: text to find every occurrence."
        )


class HistoryArguments(Arguments):
    path: str | None = Field(default=None, min_length=1, description="Only commits that changed this path.")
    limit: int = Field(default=20, ge=1, le=200)


class GitHistoryTool(ReadOnlyTool[HistoryArguments]):
    name = "history"
    description = "Shows the latest commits, newest first. Without a path, also shows the files that change most often."
    takes = HistoryArguments

    async def look(self, repository: PlannerRepository, arguments: HistoryArguments) -> str:
        return await repository.history(arguments.path, arguments.limit)


# ---- repo map --------------------------------------------------------------------------------------------------------
# `repo_map`: the folders of a repository, and the definitions in its sources.


_REPO_MAP_SOURCES = 200  # sources to parse. The others are only counted.
_KINDS = 5  # kinds of files shown per folder
_MEMBERS = 30  # per class


class RepoMapArguments(Arguments):
    pattern: str | None = None


class RepoMap(ReadOnlyTool[RepoMapArguments]):
    name = "repo_map"
    description = (
        "Shows the structure of the repository: its folders with their contents, and the definitions in its sources: "
        "classes with their methods, functions, types (C, C++, C#, Go, Java, JavaScript, PHP, Python, Ruby, Rust, "
        "TypeScript). "
        "Give a pattern to see a part of a large repository. Start here."
    )
    takes = RepoMapArguments

    async def look(self, repository: PlannerRepository, arguments: RepoMapArguments) -> str:
        pattern = arguments.pattern
        paths = [path for path in await repository.list_files() if not pattern or matches(path, [pattern])]
        sources = await read_outlines(repository, paths, limit=_REPO_MAP_SOURCES)
        lines = [f"{len(paths)} files", *_folders(paths), ""]
        lines += (
            f"{source.path}: {', '.join(outline(source.definitions))}" for source in sources if source.definitions
        )
        if unparsed := [source.path for source in sources if source.definitions is None]:
            lines.append(f"[could not be parsed: {', '.join(unparsed)}]")
        if (left_out := sum(map(is_source, paths)) - _REPO_MAP_SOURCES) > 0:
            lines.append(f"[{left_out} more sources: use a pattern to see them]")
        return "\n".join(lines)


def outline(definitions: Sequence[Definition]) -> Iterator[str]:
    """Yield each top-level definition with its public members."""
    members: dict[int, list[int]] = {}
    for index, definition in enumerate(definitions):
        members.setdefault(definition.owner, []).append(index)

    def render(index: int) -> str:
        public = [member for member in members.get(index, ()) if not definitions[member].name.startswith("_")]
        names = [render(member).removesuffix("()") for member in public[:_MEMBERS]]
        names += ["…"] * (len(public) > _MEMBERS)
        definition = definitions[index]
        return f"{definition.name}({', '.join(names)})" if names else f"{definition.name}{definition.form}"

    return (render(index) for index in members.get(-1, ()))


def _folders(paths: Sequence[str]) -> Iterator[str]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        top, slash, _ = path.partition("/")
        folders.setdefault(f"{top}/" if slash else "(root)", []).append(path)
    for top, files in sorted(folders.items()):
        yield f"(root): {', '.join(files[:30])}" if top == "(root)" else f"{top}: {len(files)} files ({_kinds(files)})"


def _kinds(paths: Iterable[str]) -> str:
    counts = Counter(PurePosixPath(path).suffix or "no suffix" for path in paths)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common(_KINDS))
