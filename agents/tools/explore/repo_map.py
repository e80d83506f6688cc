"""`repo_map`: the shape of a repository, and what its sources define, by their syntax trees."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from agents.tools.explore import Exploring
from agents.tools.outlines import Definition, is_known, outlines
from agents.tools.tool import Arguments
from fleet.core.paths import matches
from fleet.ports import DeskError, Repository

_SOURCES = 200  # read for their definitions; the rest is only counted
_KINDS = 5  # kinds of files named for a folder
_MEMBERS = 30  # of one class


class RepoMapArguments(Arguments):
    pattern: str | None = None


class RepoMap(Exploring[RepoMapArguments]):
    name = "repo_map"
    description = (
        "Shows the shape of the repository: its folders with what they hold, and what its sources define: classes "
        "with their methods, functions, types (C, C++, C#, Go, Java, JavaScript, PHP, Python, Ruby, Rust, TypeScript). "
        "Give a pattern to see a part of a large one. Start here."
    )
    takes = RepoMapArguments

    async def look(self, repository: Repository, asked: RepoMapArguments) -> str:
        paths = [path for path in await repository.list_files() if not asked.pattern or matches(path, [asked.pattern])]
        known = [path for path in paths if is_known(path)]
        sources = await read_all(repository, known[:_SOURCES])
        found = await outlines(sources)
        lines = [f"{len(paths)} files", *_folders(paths), ""]
        lines += [f"{path}: {', '.join(outline(found[path]))}" for path in sources if found.get(path)]
        if missing := [path for path in sources if path not in found]:
            lines.append(f"[could not be parsed: {', '.join(missing)}]")
        if len(known) > _SOURCES:
            lines.append(f"[{len(known) - _SOURCES} more sources; ask with a pattern]")
        return "\n".join(lines)


async def read_all(repository: Repository, paths: Sequence[str]) -> dict[str, str]:
    """Those that can be read."""
    sources: dict[str, str] = {}
    for path in paths:
        try:
            sources[path] = await repository.read_file(path)
        except DeskError:
            continue
    return sources


def outline(found: Sequence[Definition]) -> Iterator[str]:
    """Each definition at the top, with the names of what is in it: those that are meant for others."""
    members: dict[int, list[int]] = {}
    for place, one in enumerate(found):
        members.setdefault(one.owner, []).append(place)

    def said(place: int) -> str:
        inside = [below for below in members.get(place, ()) if not found[below].name.startswith("_")]
        names = [said(below).removesuffix("()") for below in inside[:_MEMBERS]]
        names += ["…"] * (len(inside) > _MEMBERS)
        return f"{found[place].name}({', '.join(names)})" if names else f"{found[place].name}{found[place].form}"

    return (said(place) for place in members.get(-1, ()))


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
