"""Paths that collide on some file systems: a checkout there would hold one file where the commit has two.

Such names differ in the case of letters, or in how letters are composed. Only what a change adds is compared with the
other names in its folders; a repository that has such names already may keep them.
"""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

from fleet.core.base.ids import Sha
from worktrees.git.object_format import folder_node
from worktrees.git.objects import Objects


def colliding_names(objects: Objects, before: Sha, after: Sha, paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The paths of a tree that collide with another path, each with that one, unless the tree before had both."""

    @cache
    def groups(folder: str) -> dict[str, list[str]]:
        """The names in a folder, those that collide together."""
        by_key: dict[str, list[str]] = defaultdict(list)
        for name in _names(objects, after, folder):
            by_key[_collision_key(name)].append(name)
        return by_key

    pairs: dict[tuple[str, str], None] = {}
    for path in paths:
        folder = ""
        for name in path.split("/"):
            others = [other for other in groups(folder)[_collision_key(name)] if other != name]
            if others and not {name, *others} <= set(_names(objects, before, folder)):
                pairs[folder + name, folder + others[0]] = None
            folder += f"{name}/"
    return tuple(pairs)


def _collision_key(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _names(objects: Objects, tree: Sha, folder: str) -> list[str]:
    """The names in a folder of a tree, given with a slash at its end; none where the tree has no such folder."""
    entries = objects.tree_at(folder_node(tree))
    for part in folder.split("/")[:-1]:
        entries = objects.tree_at(entries.get(os.fsencode(part)))
    return [os.fsdecode(name) for name in entries]
