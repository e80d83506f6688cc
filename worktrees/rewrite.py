"""Puts files of a commit into a worktree, in process, at the price of those files. What is in the way is for git."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from fleet.core.ids import Sha
from worktrees.change import folders_above
from worktrees.changes import LINK, PROGRAM
from worktrees.files import create
from worktrees.objects import Objects
from worktrees.strays import Odd

Put = tuple[str, str, Sha]
"""Path, mode and blob of a file that is to be there."""


def rewrite(objects: Objects, root: Path, *, there: Sequence[Put], gone: Iterable[str]) -> None:
    """Make files what they should be, and let go of folders that hold nothing any more. Raises `Odd` and `OSError`."""
    _remove(root, gone)
    real: set[str] = set()
    blobs = objects.blobs([blob for _, _, blob in there])
    for (path, mode, _), content in zip(there, blobs, strict=True):
        _make_way(root, path, real)
        at = f"{root}/{path}"
        try:
            with suppress(FileNotFoundError):
                os.unlink(at)  # noqa: PTH108 - plain names: this is the price of a lease
        except (IsADirectoryError, PermissionError) as error:
            raise Odd(f"{path} is a folder") from error
        if mode == LINK:
            os.symlink(content, os.fsencode(at))  # noqa: PTH211
            continue
        create(at, content, mode=0o777 if mode == PROGRAM else 0o666)


def _remove(root: Path, gone: Iterable[str]) -> None:
    real: dict[str, bool] = {"": True}
    emptied: set[str] = set()
    for path in gone:
        above = folders_above(path)
        there = list(takewhile(lambda folder: _is_real(root, folder, real), above))
        emptied |= set(there)  # those that are left of them, where a tenant took the way there away
        if len(there) == len(above):
            with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                os.unlink(f"{root}/{path}")  # noqa: PTH108
    for folder in sorted(emptied, reverse=True):
        with suppress(OSError):
            os.rmdir(f"{root}/{folder}")  # noqa: PTH106


def _is_real(root: Path, folder: str, known: dict[str, bool]) -> bool:
    if folder not in known:
        at = f"{root}/{folder}"
        known[folder] = os.path.isdir(at) and not os.path.islink(at)  # noqa: PTH112, PTH114
    return known[folder]


def _make_way(root: Path, path: str, real: set[str]) -> None:
    """The folders above a path, none of them a link."""
    if path.rpartition("/")[0] in real:
        return
    for folder in folders_above(path):
        if folder in real:
            continue
        at = f"{root}/{folder}"
        try:
            if not stat.S_ISDIR(os.lstat(at).st_mode):
                raise Odd(f"{folder} is no folder")
        except FileNotFoundError:
            os.mkdir(at)  # noqa: PTH102
        real.add(folder)
