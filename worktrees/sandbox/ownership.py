"""Ownership tags: every process started for a worker names its manager, and processes whose manager died are ended.

A tag names the manager by process namespace, process id and start time, so neither a number that was given out again
nor one from inside another container is taken for a manager of ours.
"""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TAG = "FLEET_BOX"
ROUNDS = 5  # a process that forks while it is ended is found in the next round
_TAG = re.compile(rb"(?:\A|\0)FLEET_BOX=(\d{1,20})\.(\d{1,10})\.(\d{1,20})/")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Manager:
    """A process that starts boxes."""

    namespace: int
    pid: int
    started: int
    """In clock ticks since the machine started."""

    def tag(self, name: str) -> str:
        return f"{self.namespace}.{self.pid}.{self.started}/{name}"

    def is_alive(self) -> bool:
        return _start_time(self.pid) == self.started


def this_manager() -> Manager:
    pid = os.getpid()
    return Manager(_namespace(), pid, _start_time(pid) or 0)


def end_orphans() -> None:
    """End every process whose manager is dead."""
    for _ in range(ROUNDS):
        orphans = list(_orphans())
        for pid in orphans:
            _end(pid)
        if not orphans:
            return


def manager_of(pid: int) -> Manager | None:
    """The manager that a process's tag names."""
    try:
        match = _TAG.search((_PROC / str(pid) / "environ").read_bytes())
    except OSError:  # it has ended, or we may not read it
        return None
    return Manager(*map(int, match.groups())) if match else None


def _orphans() -> Iterator[int]:
    namespace, our_pid = _namespace(), os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only; this runs over every process of the machine
        if name.isdigit() and int(name) != our_pid and _is_orphan(int(name), namespace):
            yield int(name)


def _is_orphan(pid: int, namespace: int) -> bool:
    manager = manager_of(pid)
    return manager is not None and manager.namespace == namespace and not manager.is_alive()


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if _is_orphan(pid, _namespace()):  # checked again: the number may be reused by now, the descriptor can't
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _namespace() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino


def _start_time(pid: int) -> int | None:
    """When a process started; None where there is no such process, or only a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])
