"""Whose a process is: the mark that everything started for a worker carries, and the end of what outlived its manager.

A mark names the manager by process id, start time and process namespace, so a number that was given away again, or one
from inside another container, is nobody we know. Only processes that carry the mark of a dead manager are ended.
"""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "FLEET_BOX"
ROUNDS = 5  # one that forks while it is ended is found in the next round
_MARK = re.compile(rb"(?:\A|\0)FLEET_BOX=(\d{1,20})\.(\d{1,10})\.(\d{1,20})/")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Manager:
    """A process that starts boxes."""

    namespace: int
    pid: int
    started: int
    """In clock ticks since the machine started."""

    def mark(self, name: str) -> str:
        return f"{self.namespace}.{self.pid}.{self.started}/{name}"

    def lives(self) -> bool:
        return _started(self.pid) == self.started


def this_manager() -> Manager:
    pid = os.getpid()
    return Manager(_namespace(), pid, _started(pid) or 0)


def end_orphans() -> int:
    """End every process of a manager that is dead; how many there were."""
    ended = 0
    for _ in range(ROUNDS):
        found = list(_orphans(_namespace()))
        ended += sum(_end(pid) for pid in found)
        if not found:
            break
    return ended


def manager_of(pid: int) -> Manager | None:
    """Who started a process, as its mark says."""
    try:
        found = _MARK.search((_PROC / str(pid) / "environ").read_bytes())
    except OSError:  # gone, or not ours to look at
        return None
    return Manager(*map(int, found.groups())) if found else None


def _orphans(namespace: int) -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only; this runs over every process of the machine
        if name.isdigit() and int(name) != own and _is_orphan(int(name), namespace):
            yield int(name)


def _is_orphan(pid: int, namespace: int) -> bool:
    manager = manager_of(pid)
    return manager is not None and manager.namespace == namespace and not manager.lives()


def _end(pid: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if _is_orphan(pid, _namespace()):  # asked again: the number may be another's by now, the descriptor not
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _namespace() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """When a process started; None where there is none, or only its remains."""
    try:
        parts = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if parts[0] in {b"Z", b"X"} else int(parts[19])
