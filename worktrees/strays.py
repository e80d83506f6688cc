"""What lies in a worktree that its commit does not have there, found without a walk: only where a seal is broken.

An untouched folder has the names it had, so its files can only have changed in place, which git's index tells. Called
when nothing runs in the box any more, and for worktrees without submodules.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from worktrees.objects import TREE, Tree
from worktrees.scan import OPEN
from worktrees.seals import Seal

MOST = 20_000  # entries looked at one by one; more is a matter for a whole scan
Folders = Mapping[str, Seal | None]
"""The folders of a worktree as they were, the root being the empty path."""

Names = Callable[[str], Tree]
"""What a commit has in a folder."""


class Odd(Exception):  # noqa: N818 - it is an answer
    """This is not for the quick way; the message says why."""


@dataclass(frozen=True, slots=True)
class Strays:
    """What was found."""

    paths: tuple[str, ...]
    """Outermost: files, links and folders that were not there, and whatever is of another kind than it should be."""
    missing: frozenset[str]
    """Folders that are none any more."""
    broken: frozenset[str]
    """Folders whose seal does not hold."""
    opened: bool
    """Whether a folder was closed to us."""


def find_strays(root: Path, folders: Folders, names: Names) -> Strays:
    """Look at every folder from the top. Raises `Odd`."""
    found: list[str] = []
    missing: set[str] = set()
    broken: dict[str, None] = {}
    left, opened = MOST, False
    for folder in sorted(folders):  # those above come first, so that no link is ever followed
        if missing and folder.rpartition("/")[0] in missing:
            missing.add(folder)
            continue
        at = f"{root}/{folder}" if folder else os.fspath(root)
        try:
            status = os.lstat(at)
        except (FileNotFoundError, NotADirectoryError):
            missing.add(folder)
            continue
        if (status.st_ino, status.st_ctime_ns) == folders[folder]:
            continue
        broken[folder] = None
        if not stat.S_ISDIR(status.st_mode):
            missing.add(folder)  # where it lies, it is a stray
            continue
        if status.st_mode & OPEN != OPEN:
            opened = True
            os.chmod(at, stat.S_IMODE(status.st_mode) | OPEN)  # noqa: PTH101
        with os.scandir(at) as entries:
            listed = list(entries)
        left -= len(listed)
        if left < 0:
            raise Odd(f"more than {MOST} entries in folders that were touched")
        found += _strays_in(folder, listed, names(folder), folders)
    return Strays(tuple(found), frozenset(missing), frozenset(broken), opened)


def _strays_in(folder: str, listed: list[os.DirEntry[str]], names: Tree, folders: Folders) -> Iterator[str]:
    for entry in listed:
        path = f"{folder}/{entry.name}" if folder else entry.name
        node = names.get(os.fsencode(entry.name))
        if entry.is_dir(follow_symlinks=False):
            if node is None or node[0] != TREE:
                yield path
            elif path not in folders:
                raise Odd(f"nobody knew of the folder {path}")
        elif node is not None:
            if node[0] == TREE or not (entry.is_symlink() or entry.is_file(follow_symlinks=False)):
                yield path
        elif path != ".git":
            yield path
