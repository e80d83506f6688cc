"""Temporary files of a node's process, and of a run's nodes. What a killed process left is removed by the next."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
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


@contextmanager
def run_folder_of_nodes(run: Path) -> Iterator[Path]:
    """A folder for what a run's engine, which is the only one, shares with its nodes' programs.

    Its path is short, as sockets need it, and the same in each life of the run.
    """
    name = sha256(os.fsencode(run.resolve())).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"fleet-nodes-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # someone else's
        folder = Path(tempfile.mkdtemp(prefix="fleet-nodes-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove the folders of processes that are gone."""
    for path in folder.iterdir():
        if not (path / LOCK).exists():  # it is being made, or was killed then: the folder is empty
            continue
        with try_lock(path / LOCK) as is_left:
            if is_left:
                shutil.rmtree(path, ignore_errors=True)
