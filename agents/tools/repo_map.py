"""`repo_map`: the shape of the repository on one page: folders, kinds of files, what the Python modules define."""

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from agents.tools.explore import Exploring
from agents.tools.tool import Arguments
from fleet.core.paths import matches
from fleet.ports import DeskError, Repository

_MODULES = 200  # read for their definitions; the rest is only counted
_LARGEST = 200_000  # characters of a module that is still parsed
_KINDS = 5  # kinds of files named for a folder


class RepoMapArguments(Arguments):
    pattern: str | None = None


class RepoMap(Exploring[RepoMapArguments]):
    name = "repo_map"
    description = (
        "Shows the shape of the repository: its folders with what they hold, and the classes and functions of its "
        "Python modules. Give a pattern to see a part of a large one. Start here."
    )
    takes = RepoMapArguments

    async def look(self, repository: Repository, asked: RepoMapArguments) -> str:
        paths = [path for path in await repository.list_files() if not asked.pattern or matches(path, [asked.pattern])]
        modules = [path for path in paths if path.endswith(".py")]
        lines = [f"{len(paths)} files", *_folders(paths), ""]
        for path in modules[:_MODULES]:
            try:
                source = await repository.read_file(path)
            except DeskError:
                continue
            if names := definitions(source):
                lines.append(f"{path}: {', '.join(names)}")
        if len(modules) > _MODULES:
            lines.append(f"[{len(modules) - _MODULES} more Python modules; ask with a pattern]")
        return "\n".join(lines)


def _folders(paths: Sequence[str]) -> Iterator[str]:
    tops: dict[str, list[str]] = {}
    for path in paths:
        top, slash, _ = path.partition("/")
        tops.setdefault(f"{top}/" if slash else "(root)", []).append(path)
    for top in sorted(tops):
        if top == "(root)":
            yield f"(root): {', '.join(tops[top][:30])}"
        else:
            yield f"{top}: {len(tops[top])} files ({_kinds(tops[top])})"


def _kinds(paths: Iterable[str]) -> str:
    counts = Counter(PurePosixPath(path).suffix or "no suffix" for path in paths)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common(_KINDS))


def definitions(source: str) -> tuple[str, ...]:
    """The public classes (with their methods) and functions of a module; nothing where it can't be parsed."""
    if len(source) > _LARGEST:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # all that hostile source can do to the parser
        return ()
    return tuple(_defined(tree.body))


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{node.name}()"
        elif isinstance(node, ast.ClassDef):
            methods = [part.rstrip("()") for part in _defined(node.body) if not part.startswith("_")]
            yield f"{node.name}({', '.join(methods)})" if methods else node.name
