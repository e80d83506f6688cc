"""Writes files of a commit into a new folder: in process, at the cost of these files, or by git where it must."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.base.fs import create_file, make_folder
from worktrees.git.diff import DiffEntry
from worktrees.git.object_format import EXECUTABLE, LINK, folder_node
from worktrees.git.objects import Objects
from worktrees.git.program import Git


def check_out_in_process(objects: Objects, folder: Path, files: Sequence[DiffEntry]) -> None:
    """Raises `EffectError` where a file is too large to be read in process. Blocks."""
    make_folder(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def make_folders() -> None:
        for path in dict.fromkeys(above for file in files for above in folders_above(file.path)):
            os.mkdir(path, dir_fd=fd)

    contents = objects.blobs([file.id for file in files], make_folders)
    try:
        for file, content in zip(files, contents, strict=True):
            if file.mode == LINK:
                os.symlink(content, os.fsencode(file.path), dir_fd=fd)
            else:
                create_file(file.path, content, mode=0o777 if file.mode == EXECUTABLE else 0o666, within=fd)
    finally:
        os.close(fd)


async def check_out_by_git(git: Git, folder: Path, commit: Sha, files: Sequence[DiffEntry]) -> None:
    with TemporaryDirectory(prefix="fleet-index-") as name:
        env = {"GIT_INDEX_FILE": str(Path(name, "index"))}
        await git("read-tree", commit, env=env)
        await to_thread.run_sync(make_folder, folder)
        paths = b"".join(os.fsencode(file.path) + b"\0" for file in files)
        await Git(git.git_dir, folder)("checkout-index", "-z", "--stdin", "--force", env=env, data=paths)


# ---- colliding names -------------------------------------------------------------------------------------------------
# Paths that collide on some file systems: a checkout there would hold one file where the commit has two.
#
# Such names differ in the case of letters, or in how letters are composed. Only what a change adds is compared with
# the other names in its folders; a repository that has such names already may keep them.


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
