"""Names that some file systems take for one: a checkout there would hold one file where the commit has two.

Letters of another case, and letters composed in another way. Only what a change adds is looked at, beside what lies in
the same folders; a repository that holds such names already may keep them.
"""

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from fleet.core.ids import Sha
from worktrees.git import Git
from worktrees.objects import TREE, Objects

Names = Callable[[str], Iterable[str]]
"""The names in a folder of a tree; none where it has no such folder."""


def alike(objects: Objects, before: Sha, after: Sha, paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Each of these paths of a tree that is like another one, unless the tree before had both; with that other one."""
    return _alike(_in(objects, before), _in(objects, after), paths)


async def alike_by_git(git: Git, before: Sha, after: Sha, paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The same of commits or trees, where objects are git's."""
    return _alike(await _listed(git, before), await _listed(git, after), paths)


def _alike(before: Names, after: Names, paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    known: dict[str, dict[str, list[str]]] = {}
    found: dict[tuple[str, str], None] = {}
    for path in paths:
        folder = ""
        for name in path.split("/"):
            if folder not in known:
                known[folder] = _by_likeness(after(folder))
            others = [other for other in known[folder][_likeness(name)] if other != name]
            if others and not {name, *others} <= set(before(folder)):
                found[_below(folder, name), _below(folder, others[0])] = None
            folder = _below(folder, name)
    return tuple(found)


def _by_likeness(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_likeness(name), []).append(name)
    return groups


def _likeness(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _in(objects: Objects, tree: Sha) -> Names:
    def names(folder: str) -> Iterator[str]:
        current = tree
        for part in folder.split("/") if folder else ():
            node = objects.tree(current).get(os.fsencode(part))
            if node is None or node[0] != TREE:
                return
            current = node[1].hex()
        yield from map(os.fsdecode, objects.tree(current))

    return names


async def _listed(git: Git, tree: Sha) -> Names:
    folders: dict[str, set[str]] = {}
    for raw in (await git("ls-tree", "-r", "-z", "--name-only", tree)).split(b"\0"):
        folder = ""
        for name in os.fsdecode(raw).split("/") if raw else ():
            folders.setdefault(folder, set()).add(name)
            folder = _below(folder, name)
    return lambda folder: folders.get(folder, ())
