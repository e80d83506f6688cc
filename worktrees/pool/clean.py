"""Removes from a used worktree what `git checkout --force` would not notice.

Git writes a file again when its times or sizes differ from the index. The index counts times in whole seconds, so of a
file as young as the index git compares only the content, under the attribute files that it finds in the worktree: a
changed mode, an extended attribute or a second name of the file would stay. Git also finds files behind a link to a
folder that was moved. Such files and all links are removed here, and git writes them again.
"""

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from worktrees.git.object_format import ATTRIBUTES

SECOND = 1_000_000_000
GIVEN_BY_TENANTS = ("user.", "system.posix_acl")
"""Prefixes of the extended attributes that a file's owner may set."""


def remove_irregular_files(root: Path, index: Path, folder_mode: int, *, keep: Collection[str]) -> None:
    """Remove links, and young files that are not as git writes them; folders get their mode back.

    Leaves the paths in `keep` alone. Called after the scan, when no process of a tenant runs. Links are not followed.
    """
    kept_paths = {f"{root}/{path}" for path in keep}
    young = index.stat().st_mtime_ns // SECOND * SECOND if index.exists() else 0
    file_modes = {folder_mode & 0o666, folder_mode & 0o777}
    pending = [os.fspath(root)]
    while pending:
        folder = pending.pop()
        _restore_folder(folder, folder_mode)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.path in kept_paths:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode) or (
                    status.st_ctime_ns >= young and not _is_as_written(entry, status, file_modes)
                ):
                    os.unlink(entry.path)  # noqa: PTH108 - plain names: every file of a worktree comes by here


def _is_as_written(entry: os.DirEntry[str], status: os.stat_result, modes: Collection[int]) -> bool:
    return (
        stat.S_ISREG(status.st_mode)
        and stat.S_IMODE(status.st_mode) in modes
        and status.st_nlink == 1
        and entry.name != ATTRIBUTES
        and not _attributes_of(entry.path)
    )


def _restore_folder(folder: str, mode: int) -> None:
    if stat.S_IMODE(os.lstat(folder).st_mode) != mode:
        os.chmod(folder, mode)  # noqa: PTH101 - as above
    for name in _attributes_of(folder):
        os.removexattr(folder, name, follow_symlinks=False)


def _attributes_of(path: str) -> list[str]:
    with suppress(OSError):  # a file system without extended attributes
        return [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(GIVEN_BY_TENANTS)]
    return []
