"""Diff layers: a diff layer above the files of one commit shows those of another.

It holds the files that differ and a whiteout for each that was removed. It is written in process, in time proportional
to the difference; where attributes convert files during a checkout, git writes them itself.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.base.fs import make_folder
from worktrees.git.object_format import TREE
from worktrees.git.objects import Objects
from worktrees.git.trees.diff import Diff
from worktrees.store.store import Store


async def make_diff_layer(store: Store, layer: Path, old: Sha, new: Sha, *, most: int, converts: bool) -> Diff | None:
    """Make the folder of the layer from one commit to another, unless their files are the same; returns the diff.

    None where they differ in more than `most` paths, or in how files are converted. `converts`: whether any file is.
    """
    repository = store.repository
    diff = await repository.diff(old, new)
    if len(diff.entries) > most or diff.changes_attributes:
        return None
    if diff.entries:
        await repository.check_out(layer, new, diff.files, converts=converts)
        await repository.run(partial(_add_folders_and_whiteouts, repository.objects, layer, new, diff))
    return diff


def _hidden(objects: Objects, commit: Sha, removed: Sequence[str]) -> tuple[str, ...]:
    """The paths to hide: removed files, or their whole folder where nothing of it remains."""
    trees: dict[str, Sha | None] = {"": objects.tree_of(commit)}

    def tree_at(folder: str) -> Sha | None:
        if folder not in trees:
            parent_folder, _, name = folder.rpartition("/")
            parent = tree_at(parent_folder)
            node = objects.tree(parent).get(os.fsencode(name)) if parent is not None else None
            trees[folder] = node[1].hex() if node is not None and node[0] == TREE else None
        return trees[folder]

    outermost = (next((above for above in folders_above(path) if tree_at(above) is None), path) for path in removed)
    return tuple(dict.fromkeys(outermost))


def _add_folders_and_whiteouts(objects: Objects, layer: Path, commit: Sha, diff: Diff) -> None:
    """Add the folders of submodules, and whiteouts for what was removed."""
    for path in diff.gitlinks:
        make_folder(layer / path)
    for path in _need_whiteout(layer, _hidden(objects, commit, diff.removed)):
        make_folder((layer / path).parent)
        os.mknod(layer / path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def _need_whiteout(layer: Path, hidden: Sequence[str]) -> Iterator[str]:
    """The paths that the layer does not hide already, by a file where a folder was or a folder where a file was."""
    for path in hidden:
        above = [layer / folder for folder in folders_above(path)]
        below_a_file = any(folder.is_symlink() or (folder.exists() and not folder.is_dir()) for folder in above)
        if not below_a_file and not os.path.lexists(layer / path):
            yield path
