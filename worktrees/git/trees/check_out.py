"""Writes files of a commit into a new folder: in process, at the cost of these files, or by git where it must."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.base.fs import create_file, make_folder
from worktrees.git.object_format import EXECUTABLE, LINK
from worktrees.git.objects import Objects
from worktrees.git.program import Git
from worktrees.git.trees.diff import DiffEntry


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
