"""Three-way merges of trees in process, for changes that do not meet; and what differs between two trees.

A fold takes each side's changed paths and writes only the trees on the way to them, so it costs what the two sides
changed, whatever the repository weighs. It refuses wherever git would have to think: a path that both sides changed
(also where they changed it alike), a file where the other side has a folder, work in a folder that the other side took
away. Every rename that could matter shows as one of these: a file renamed on one side and edited on the other is a path
that both changed, and a folder that git would take for renamed is gone on that side, so a file the other side put into
it is refused. What is refused goes to `git merge-tree`. A property test holds the two to the same trees.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.core.ids import Sha
from worktrees.objects import TREE, Node, Objects, Tree

DEEPEST = 200  # folders; deeper ones are git's
LONGEST_LINE = 20_000  # commits between a candidate's base and the tip
EMPTY: Tree = {}


class _Refused(Exception):  # noqa: N818 - it is an answer
    """Both sides changed something here."""


@dataclass(frozen=True, slots=True)
class Differs:
    """A path that is not the same in two trees: a file, a link or a submodule, never a folder."""

    path: bytes
    old: Node | None
    new: Node | None


def fold(objects: Objects, base: Sha, ours: Sha, theirs: Sha) -> Sha | None:
    """The tree that merges two trees; None where that is for git to say."""
    if base == theirs:
        return ours
    if base == ours:
        return theirs
    try:
        return objects.put_tree(_folded(objects, objects.tree(base), objects.tree(ours), objects.tree(theirs), 0))
    except _Refused:
        return None


def _folded(objects: Objects, base: Tree, ours: Tree, theirs: Tree, depth: int) -> Tree:
    """Our tree, with what they changed. Raises `_Refused`."""
    if depth > DEEPEST:
        raise _Refused
    merged = dict(ours)
    for name in _unlike(base, theirs):
        was, here, there = base.get(name), ours.get(name), theirs.get(name)
        if was == here:
            _set(merged, name, there)
            continue
        if here == there or not (_is_folder(here) and _is_folder(there)) or not (was is None or _is_folder(was)):
            raise _Refused
        below = _folded(objects, _below(objects, was), _below(objects, here), _below(objects, there), depth + 1)
        _set(merged, name, (TREE, bytes.fromhex(objects.put_tree(below))) if below else None)
    return merged


def _set(tree: dict[bytes, Node], name: bytes, node: Node | None) -> None:
    if node is None:
        tree.pop(name, None)
    else:
        tree[name] = node


def _unlike(before: Tree, after: Tree) -> list[bytes]:
    """The names that two folders do not share, or have for different things."""
    found = [name for name, node in after.items() if before.get(name) != node]
    return found + [name for name in before if name not in after]


def _is_folder(node: Node | None) -> bool:
    return node is not None and node[0] == TREE


def _below(objects: Objects, node: Node | None) -> Tree:
    """The folder that an entry is; nothing where it is none."""
    return objects.tree(node[1].hex()) if node is not None and node[0] == TREE else EMPTY


def differing(objects: Objects, old: Sha, new: Sha) -> tuple[Differs, ...]:
    """The paths that two trees do not share, in git's order."""
    found = [] if old == new else list(_differing(objects, objects.tree(old), objects.tree(new)))
    return tuple(sorted(found, key=lambda each: each.path))


def _differing(objects: Objects, old: Tree, new: Tree) -> Iterator[Differs]:
    """Folder by folder, all of one depth together, so that their trees are read together."""
    level: list[tuple[bytes, Tree, Tree]] = [(b"", old, new)]
    while level:
        folders: list[tuple[bytes, Node | None, Node | None]] = []
        for folder, before, after in level:
            for name in _unlike(before, after):
                path = folder + name
                was, now = before.get(name), after.get(name)
                file_was, file_now = (None if _is_folder(node) else node for node in (was, now))
                if file_was is not None or file_now is not None:
                    yield Differs(path, file_was, file_now)
                if _is_folder(was) or _is_folder(now):
                    folders.append((path + b"/", was, now))
        objects.expect_trees(node[1].hex() for _, *pair in folders for node in pair if node and _is_folder(node))
        level = [(path, _below(objects, was), _below(objects, now)) for path, was, now in folders]


def on_the_line(objects: Objects, tip: Sha, *, base: Sha, unless: Sha) -> bool:
    """Whether `base` is reached from the tip by single parents, without meeting `unless`.

    Then `base` is the one merge base of the tip and of `unless`, if that has `base` for its only parent.
    """
    at = tip
    for _ in range(LONGEST_LINE):
        if at == base:
            return True
        parent = None if at == unless else objects.only_parent(at)
        if parent is None:
            return False
        at = parent
    return False
