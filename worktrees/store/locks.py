"""Removes lock files and refs that a git of a dead engine left in the store, before the next engine relies on it.

A lock is stale where no process is alive that could hold it. The refs of a run belong to its engine alone, and the
caller holds the run's own lock; the rest of the store is shared, and is cleaned only while no git works in it. Nothing
in the user's repository is touched.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from anyio import to_thread

from fleet.core.base.ids import RunId, run_refs
from worktrees.git.object_format import ID
from worktrees.store.store import Store

LOCK = ".lock"
PATIENCE_S, POLL_S = 2.0, 0.02  # a git whose engine was killed finishes its work
CONTENT = re.compile(rf"(?:{ID}|ref: refs/[^\n]+)\n?".encode())
SHARED = ("*.lock", "packed-refs.new", "worktrees/*/*.lock", "objects/info/*.lock", "objects/pack/*.lock")
_PROC = Path("/proc")


async def remove_stale_locks(store: Store, run: RunId, *, patience_s: float = PATIENCE_S) -> None:
    """Remove the locks and half-written refs that could keep this run from continuing."""
    if await to_thread.run_sync(_stale, store, run):
        await to_thread.run_sync(_wait_unused, store, patience_s)
        async with store.administration():
            await to_thread.run_sync(_remove, store, run)


def _wait_unused(store: Store, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while _is_in_use(store) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _remove(store: Store, run: RunId) -> None:
    for path in _stale(store, run, with_shared=not _is_in_use(store)):
        path.unlink(missing_ok=True)


def _stale(store: Store, run: RunId, *, with_shared: bool = True) -> list[Path]:
    shared = (path for pattern in SHARED for path in store.git_dir.glob(pattern)) if with_shared else ()
    return [*_useless_files(store.git_dir / run_refs(run)), *shared]


def _useless_files(refs: Path) -> Iterator[Path]:
    """Locks, and refs that name nothing: what a power cut leaves of one that was just written."""
    for folder, _, names in os.walk(refs):
        for path in (Path(folder, name) for name in names):
            if path.suffix == LOCK or CONTENT.fullmatch(path.read_bytes()) is None:
                yield path


def _is_in_use(store: Store) -> bool:
    """Whether any git works in this store."""
    variable = b"\0GIT_DIR=" + os.fsencode(store.git_dir) + b"\0"
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only; this runs over every process of the machine
        if name.isdigit():
            with suppress(OSError):
                if variable in b"\0" + (_PROC / name / "environ").read_bytes() + b"\0":
                    return True
    return False
