"""How many workers this machine can run: open files, processes and room on the disk, looked at before a run works.

Where there is too little for one worker, the run is refused with what to do; otherwise it gets as many as there may be.
"""

import gc
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FleetError
from worktrees.sandbox.resource_monitor import least_free

MIB = 1024 * 1024
OWN_FILES, FILES = 48, 6  # open files of the manager, and of each worker: pipes, a gate, a connection, a worktree
OWN_PROCESSES, PROCESSES = 32, 16  # processes and threads: helpers of the manager, and a box with a build in it
ROOM = 64 * MIB  # that a worker's change may take, besides what boxes leave free
OWN_INODES, INODES = 500, 100
PROC = Path("/proc")
MORE_PROCESSES = "raise the limit: ulimit -u 4096"


@dataclass(frozen=True, slots=True)
class Supply:
    """One thing that workers need, and for how many of them it is enough."""

    workers: int
    why: str
    """What there is of it."""
    fix: str


def capacity(state_dir: Path, *, wanted: int, free_bytes: int) -> Supply:
    """The scarcest supply. Raises the limit of open files first, as far as this process may."""
    folder = next(folder for folder in (state_dir, *state_dir.parents) if folder.exists())
    status = os.statvfs(folder)
    supplies = (open_files(wanted), processes(), disk(folder, status, free_bytes), inodes(folder, status))
    return min(supplies, key=lambda supply: supply.workers)


def workers_or_refuse(supply: Supply, wanted: int) -> int:
    """How many of the wanted workers there may be. Raises `FleetError` if there is not enough for one."""
    if supply.workers < 1:
        raise FleetError(f"{supply.why}, which is too little for one worker; {supply.fix}")
    return min(wanted, supply.workers)


def open_files(wanted: int) -> Supply:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN_FILES + FILES * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
        soft = max(soft, allowed)
    workers = wanted if soft == resource.RLIM_INFINITY else (soft - OWN_FILES) // FILES
    return Supply(workers, f"at most {soft} files may be open at once", "raise the limit: ulimit -n 4096")


def processes() -> Supply:
    """Root is not limited, and neither is who has no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return Supply(10**6, "processes are not limited", MORE_PROCESSES)
    return limited_processes(limit, running=_running(os.geteuid()))


def limited_processes(limit: int, *, running: int) -> Supply:
    free = limit - running
    why = f"at most {limit} processes and threads may run, and {max(0, free)} of these are free"
    return Supply((free - OWN_PROCESSES) // PROCESSES, why, MORE_PROCESSES)


def _running(user: int) -> int:
    """The threads of a user: the limit counts them as processes."""
    count = 0
    for folder in PROC.iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == user:
                count += sum(1 for _ in (folder / "task").iterdir())
        except OSError:  # it has ended meanwhile
            continue
    return count


def disk(folder: Path, status: os.statvfs_result, free_bytes: int) -> Supply:
    """What commands must leave free, `free_bytes` or a part of a small disk, is for no worker. One is always tried."""
    free, kept = status.f_bavail * status.f_frsize, least_free(status, free_bytes)
    why = f"{free // MIB} MiB are free on the disk of {folder}, and commands must leave {kept // MIB} of these"
    fix = "free some space (`fleet clean` helps), or choose another disk with FLEET_STATE_DIR"
    return Supply(max(1, (free - kept) // ROOM), why, fix)


def inodes(folder: Path, status: os.statvfs_result) -> Supply:
    """One worker is always tried: a disk that is full says so itself."""
    fix = "remove some files (`fleet clean` helps), or choose another disk with FLEET_STATE_DIR"
    if not status.f_files:  # some file systems have no fixed number
        return Supply(10**6, "files are not limited", fix)
    why = f"there is room for {status.f_favail} files on the disk of {folder}"
    return Supply(max(1, (status.f_favail - OWN_INODES) // INODES), why, fix)


# ---- garbage ---------------------------------------------------------------------------------------------------------
# When a process that works on a run looks for garbage.


COLLECTED = (20_000, 10, 10)
"""Objects made and not freed until the youngest are looked at, and how often that happens until older ones are."""


def collect_rarely() -> None:
    """Have the garbage collector look less often, and never at what is loaded once: that stops all calls for 100 ms.

    A run's state holds no cycles and only grows. Looking at all of it each time that it had grown by a quarter took
    half of the engine's processor time in a run of 10,000 subtasks.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)
