"""The processes that this one started, and those that they started: for when they must not outlive a wait."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
POLL_S = 0.01


def descendants(of: int | None = None) -> frozenset[int]:
    """The children of a process, by default of this one, and theirs."""
    first = of or os.getpid()
    parents = {int(folder.name): _parent(folder) for folder in PROC.iterdir() if folder.name.isdigit()}
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found - {first})


def kill_descendants(*, marked: bytes = b"") -> bool:
    """Kill them, also those that are stopped; only those whose environment holds `marked`. Whether there were any."""
    pids = [pid for pid in descendants() if not marked or marked in _environment(pid)]
    _send(pids, signal.SIGKILL)
    return bool(pids)


def end_descendants(grace_s: float) -> None:
    """Ask them to end, also those that are stopped: git removes its locks. Kill what is left after the grace."""
    _send(descendants(), signal.SIGTERM, signal.SIGCONT)
    until = time.monotonic() + grace_s
    while descendants() and time.monotonic() < until:
        time.sleep(POLL_S)
    kill_descendants()


def _send(pids: Iterable[int], *signals: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            for each in signals:
                os.kill(pid, each)


def _parent(folder: Path) -> int:
    try:
        text = (folder / "stat").read_bytes()
    except OSError:  # it has ended meanwhile
        return 0
    status, parent = text.rpartition(b")")[2].split()[:2]  # the name before them may hold anything
    return 0 if status == b"Z" else int(parent)  # a dead one has no children, and only waits to be reaped


def _environment(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""
