"""The number of workers that this machine can run, from its open files, processes and disk space.

Checked before a run starts. The run gets at most this many workers. If it is 0, the run is refused with a fix.
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
OWN_PROCESSES, PROCESSES = 32, 16  # processes and threads: helpers of the manager, and a build in a sandbox
ROOM = 64 * MIB  # for the change of a worker, in addition to the space that sandboxes leave free
OWN_INODES, INODES = 500, 100
PROC = Path("/proc")
MORE_PROCESSES = "raise the limit: ulimit -u 4096"


@dataclass(frozen=True, slots=True)
class CapacityLimit:
    """A resource, and the number of workers that it is enough for."""

    workers: int
    why: str
    """A description of the limit."""
    fix: str


def capacity(state_dir: Path, *, wanted: int, free_bytes: int) -> CapacityLimit:
    """The scarcest resource. Raises the limit of open files first, as far as this process can."""
    folder = next(folder for folder in (state_dir, *state_dir.parents) if folder.exists())
    status = os.statvfs(folder)
    supplies = (open_files(wanted), processes(), disk(folder, status, free_bytes), inodes(folder, status))
    return min(supplies, key=lambda supply: supply.workers)


def workers_or_refuse(supply: CapacityLimit, wanted: int) -> int:
    """The possible number of workers, at most `wanted`. Raises `FleetError` if it is 0."""
    if supply.workers < 1:
        raise FleetError(f"{supply.why}: not enough for one worker", hint=supply.fix)
    return min(wanted, supply.workers)


def open_files(wanted: int) -> CapacityLimit:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN_FILES + FILES * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
        soft = max(soft, allowed)
    workers = wanted if soft == resource.RLIM_INFINITY else (soft - OWN_FILES) // FILES
    return CapacityLimit(workers, f"the limit of open files is {soft}", "raise the limit: ulimit -n 4096")


def processes() -> CapacityLimit:
    """Root does not have a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return CapacityLimit(10**6, "processes are not limited", MORE_PROCESSES)
    return limited_processes(limit, running=_running(os.geteuid()))


def limited_processes(limit: int, *, running: int) -> CapacityLimit:
    free = limit - running
    why = f"the limit of processes and threads is {limit}, with {max(0, free)} free"
    return CapacityLimit((free - OWN_PROCESSES) // PROCESSES, why, MORE_PROCESSES)


def _running(user: int) -> int:
    """The threads of a user, which the limit counts as processes."""
    count = 0
    for folder in PROC.iterdir():
        try:
            if folder.name.isdigit() and folder.stat().st_uid == user:
                count += sum(1 for _ in (folder / "task").iterdir())
        except OSError:  # the process has ended
            continue
    return count


def disk(folder: Path, status: os.statvfs_result, free_bytes: int) -> CapacityLimit:
    """The disk space beyond the reserve: `free_bytes`, or a share of a small disk. Allows at least one worker."""
    free, kept = status.f_bavail * status.f_frsize, least_free(status, free_bytes)
    why = f"the disk of {folder} has {free // MIB} MiB free, of which commands must leave {kept // MIB}"
    fix = "free some disk space with `fleet clean --apply`, or set FLEET_STATE_DIR to another disk"
    return CapacityLimit(max(1, (free - kept) // ROOM), why, fix)


def inodes(folder: Path, status: os.statvfs_result) -> CapacityLimit:
    """The free files on the disk. At least one worker: a full disk fails with a clear error."""
    fix = "delete some files with `fleet clean --apply`, or set FLEET_STATE_DIR to another disk"
    if not status.f_files:  # some file systems have no fixed number
        return CapacityLimit(10**6, "files are not limited", fix)
    why = f"the disk of {folder} has room for {status.f_favail} files"
    return CapacityLimit(max(1, (status.f_favail - OWN_INODES) // INODES), why, fix)


# ---- garbage ---------------------------------------------------------------------------------------------------------
# How often a process that works on a run collects garbage.


COLLECTED = (20_000, 10, 10)
"""The thresholds of `gc.set_threshold`."""


def collect_rarely() -> None:
    """Collect garbage less often, and never the objects loaded so far, which would stop all calls for 100 ms.

    A run's state has no cycles and only grows. Full collections each time it had grown by a quarter took half of the
    engine's processor time in a run of 10,000 subtasks.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)
