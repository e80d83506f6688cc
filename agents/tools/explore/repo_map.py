"""`repo_map`: the folders of a repository, and what its sources define according to their syntax trees."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from agents.tools.explore.outlines import Definition, is_source, read_outlines
from agents.tools.tool import Arguments, ReadOnlyTool
from fleet.core.base.paths import matches
from fleet.ports.agents import Repository

_SOURCES = 200  # parsed for their definitions; the rest is only counted
_KINDS = 5  # kinds of files named for a folder
_MEMBERS = 30  # of one class


class RepoMapArguments(Arguments):
    pattern: str | None = None


class RepoMap(ReadOnlyTool[RepoMapArguments]):
    name = "repo_map"
    description = (
        "Shows the structure of the repository: its folders with their contents, and what its sources define: classes "
        "with their methods, functions, types (C, C++, C#, Go, Java, JavaScript, PHP, Python, Ruby, Rust, TypeScript). "
        "Give a pattern to see a part of a large repository. Start here."
    )
    takes = RepoMapArguments

    async def look(self, repository: Repository, arguments: RepoMapArguments) -> str:
        pattern = arguments.pattern
        paths = [path for path in await repository.list_files() if not pattern or matches(path, [pattern])]
        sources = await read_outlines(repository, paths, limit=_SOURCES)
        lines = [f"{len(paths)} files", *_folders(paths), ""]
        lines += (
            f"{source.path}: {', '.join(outline(source.definitions))}" for source in sources if source.definitions
        )
        if unparsed := [source.path for source in sources if source.definitions is None]:
            lines.append(f"[could not be parsed: {', '.join(unparsed)}]")
        if (left_out := sum(map(is_source, paths)) - _SOURCES) > 0:
            lines.append(f"[{left_out} more sources; ask with a pattern]")
        return "\n".join(lines)


def outline(definitions: Sequence[Definition]) -> Iterator[str]:
    """Each definition at the top level with its public members."""
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
