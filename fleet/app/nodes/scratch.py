"""Temporary files of a node's process. What a killed one left is removed by the next."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worktrees.store.store import try_lock

FOLDERS = "node/temporary"
LOCK, NEW = "lock", "new"


@contextmanager
def scratch_folder(state_dir: Path) -> Iterator[Path]:
    """A folder that all temporary files of this process are made in, until the block ends."""
    folder = state_dir / FOLDERS
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_left(folder)
    before = tempfile.tempdir
    own = Path(tempfile.mkdtemp(dir=folder))
    try:
        with try_lock(own / NEW):
            (own / NEW).rename(own / LOCK)  # with this name it is locked
            tempfile.tempdir = str(own)
            yield own
    finally:
        tempfile.tempdir = before
        shutil.rmtree(own, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove the folders of processes that are gone."""
    for path in folder.iterdir():
        if not (path / LOCK).exists():  # it is being made, or was killed then: the folder is empty
            continue
        with try_lock(path / LOCK) as is_left:
            if is_left:
                shutil.rmtree(path, ignore_errors=True)
