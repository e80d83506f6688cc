"""Lock files and refs that a git of a dead engine left in the store, removed before the next engine relies on it.

A lock is stale where nobody lives who could hold it. The refs of a run are its engine's alone, and whoever sweeps holds
the run's own lock; the rest of the store is shared, and is swept only when no git at all works in it. Nothing in the
user's repository is touched.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from anyio import to_thread

from fleet.core.ids import RunId, run_refs
from worktrees.store import Store

LOCK = ".lock"
PATIENCE_S, LOOK_S = 2.0, 0.02  # a git whose engine was killed finishes what it is at
ID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?|ref: refs/[^\n]+\n?")
SHARED = ("*.lock", "worktrees/*/*.lock", "objects/info/*.lock", "objects/pack/*.lock")
_PROC = Path("/proc")


async def sweep(store: Store, run: RunId) -> None:
    """Leave no lock and no half-written ref behind that could keep this run from going on."""
    own = store.git_dir / run_refs(run)
    if not await to_thread.run_sync(_any, store, own):
        return
    await to_thread.run_sync(_wait_unused, store)
    async with store.administration():
        await to_thread.run_sync(_sweep, store, own)


def _wait_unused(store: Store) -> None:
    until = time.monotonic() + PATIENCE_S
    while _in_use(store) and time.monotonic() < until:
        time.sleep(LOOK_S)


def _any(store: Store, own: Path) -> bool:
    return bool([*_shared(store), *_useless(own)])


def _sweep(store: Store, own: Path) -> None:
    stale = list(_useless(own))
    if not _in_use(store):
        stale += _shared(store)
    for path in stale:
        path.unlink(missing_ok=True)


def _shared(store: Store) -> list[Path]:
    return [path for pattern in SHARED for path in store.git_dir.glob(pattern)]


def _useless(own: Path) -> Iterator[Path]:
    """Locks, and refs that name nothing: what a power cut leaves of one that was just written."""
    for folder, _, names in os.walk(own):
        for path in (Path(folder, name) for name in names):
            if path.suffix == LOCK or ID.fullmatch(path.read_bytes()) is None:
                yield path


def _in_use(store: Store) -> bool:
    """Whether a git works in this store, whoever started it."""
    mark = b"\0GIT_DIR=" + os.fsencode(store.git_dir) + b"\0"
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only; this runs over every process of the machine
        if name.isdigit():
            with suppress(OSError):
                if mark in b"\0" + (_PROC / name / "environ").read_bytes() + b"\0":
                    return True
    return False
