"""Watches a box while a command runs in it, and ends it if it exceeds its share of the machine.

The kernel limits each process. This monitor limits all processes of a box together: memory, processes (root has no
limit on them) and disk space. It measures from outside. Invisible use is not counted, and minimums for the whole
machine catch the rest. A command that ends before the first measurement is never inspected.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from anyio import CapacityLimiter, sleep, to_thread
from anyio.lowlevel import RunVar

from worktrees.base.settings import MIB, BoxLimits
from worktrees.base.turns import loop_limiter

TICK_S = 0.2
SMALL_DISK, SMALL_PART = 2048 * MIB, 10  # a smaller disk keeps a tenth free
WALK_S = 1.0  # between two scans of the disk, and
WALK_PART = 20  # this many times the duration of the last one
WATCHERS = 2  # threads that scan at the same time
HEAVY_PART = 8  # if memory is scarce, boxes that use more than this part of their share are ended
LOW_MEMORY_PART = 20  # memory is scarce if less than this part of it is available, or less than
LOW_MEMORY = 256 * MIB
BLOCK = 512
PROC = Path("/proc")

_watchers: RunVar[CapacityLimiter | None] = RunVar("_watchers")


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk use of some folders."""

    taken: int = 0
    files: int = 0


UNLIMITED = Disk(sys.maxsize, sys.maxsize)


@dataclass(slots=True)
class ResourceMonitor:
    """The monitor of one command."""

    limits: BoxLimits
    init: Callable[[], int | None]
    """Returns the first process of the box, once it exists."""
    folders: tuple[Path, ...]
    """The folders that the command may write to on disk."""
    counts_all: bool
    """Whether all content of the folders is the tenant's. If not, only growth after the first scan counts."""
    verdict: str = ""
    """The reason why the box was ended."""
    peak: int = 0
    """The highest memory use measured, in bytes."""
    _before: Disk | None = None
    _next_walk: float = 0.0

    async def watch(self) -> None:
        """Measure repeatedly. Returns when the box has ended or was ended."""
        await sleep(TICK_S)
        while (pid := self.init()) is None:  # noqa: ASYNC110 - on a busy machine creating the box takes longer
            await sleep(TICK_S)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # it has ended
            return
        limiter = loop_limiter(_watchers, WATCHERS)
        try:
            while not self.verdict:
                self.verdict = await to_thread.run_sync(self._problem, pid, limiter=limiter, abandon_on_cancel=True)
                if not self.verdict:
                    await sleep(TICK_S)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # this ends everything in its namespace
        finally:
            os.close(pidfd)

    def _problem(self, pid: int) -> str:
        limits = self.limits
        members = dict(_members(pid, most=limits.processes))
        if sum(members.values()) > limits.processes:
            return f"it used more than {limits.processes} processes"
        return self._memory_problem(list(members)) or self._disk_problem()

    def _memory_problem(self, members: list[int]) -> str:
        share = self.limits.memory_bytes
        taken = _resident(members)
        available, total = _memory_of_machine()
        scarce = available < min(LOW_MEMORY, total // LOW_MEMORY_PART)
        if taken > share or scarce:
            taken = _exact(members)  # pages shared by processes were counted for each of them
        self.peak = max(self.peak, taken)
        if taken > share:
            return f"it used more than {share // MIB} MiB of memory"
        if scarce and taken > share // HEAVY_PART:
            return f"it used {taken // MIB} MiB of memory while the machine was almost out of memory"
        return ""

    def _disk_problem(self) -> str:
        limits = self.limits
        for folder in self.folders:
            with suppress(OSError):
                status = os.statvfs(folder)
                least = least_free(status, limits.free_bytes)
                if status.f_bavail * status.f_frsize < least:
                    return f"less than {least // MIB} MiB of disk space is free"
        started = monotonic()
        if started < self._next_walk:
            return ""
        if self._before is None:
            self._before = Disk() if self.counts_all else _disk(self.folders, most=UNLIMITED)
        before = self._before
        now = _disk(self.folders, most=Disk(before.taken + limits.disk_bytes, before.files + limits.disk_files))
        self._next_walk = monotonic() + max(WALK_S, WALK_PART * (monotonic() - started))
        if now.taken - before.taken > limits.disk_bytes:
            return f"it used more than {limits.disk_bytes // MIB} MiB on disk"
        if now.files - before.files > limits.disk_files:
            return f"it created more than {limits.disk_files} files"
        return ""


def least_free(status: os.statvfs_result, free_bytes: int) -> int:
    """Return the minimum free space on a disk: `free_bytes`, or a fraction of a small disk."""
    total = status.f_blocks * status.f_frsize
    return min(free_bytes, total // SMALL_PART) if total < SMALL_DISK else free_bytes


def _members(init: int, *, most: int) -> Iterator[tuple[int, int]]:
    """Return the processes of a box with their thread counts, not many more than `most`."""
    pending, seen = [init], 0
    while pending and seen <= most:
        pid = pending.pop()
        try:
            threads = os.listdir(PROC / str(pid) / "task")  # noqa: PTH208 - names only
        except OSError:
            continue
        seen += len(threads)
        yield pid, len(threads)
        for thread in threads:
            with suppress(OSError):
                pending += map(int, (PROC / str(pid) / "task" / thread / "children").read_text().split())


def _resident(members: list[int]) -> int:
    """Return the private memory, overestimated: a page that two processes share after a fork counts twice."""
    page, pages = os.sysconf("SC_PAGE_SIZE"), 0
    for pid in members:
        with suppress(OSError, ValueError, IndexError):
            _, resident, shared = (PROC / str(pid) / "statm").read_text().split()[:3]
            pages += int(resident) - int(shared)
    return pages * page


def _exact(members: list[int]) -> int:
    """Return the memory, each page counted once, with the content of unnamed files."""
    taken, nameless = 0, dict[tuple[int, int], int]()
    for pid in members:
        with suppress(OSError):
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
            taken += 1024 * (sizes.get("Pss_Anon", sizes.get("Pss", 0)) + sizes.get("SwapPss", 0))
        with suppress(OSError), os.scandir(PROC / str(pid) / "fd") as files:
            for file in files:
                with suppress(OSError):
                    if os.readlink(file.path).startswith("/memfd:"):  # noqa: PTH115 - bytes of a name, no path
                        status = os.stat(file.path)  # noqa: PTH116
                        nameless[status.st_dev, status.st_ino] = status.st_blocks * BLOCK
    return taken + sum(nameless.values())


def _disk(folders: tuple[Path, ...], *, most: Disk) -> Disk:
    """Measure folders. Stops counting beyond `most`."""
    taken, files, pending = 0, 0, [os.fspath(folder) for folder in folders]
    while pending and taken <= most.taken and files <= most.files:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                files += 1
                with suppress(OSError):
                    taken += entry.stat(follow_symlinks=False).st_blocks * BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                if files > most.files:
                    break
    return Disk(taken, files)


def _memory_of_machine() -> tuple[int, int]:
    """Return the available and the total memory."""
    sizes = {line.split(":")[0]: line.split()[1] for line in (PROC / "meminfo").read_text().splitlines()}
    return int(sizes["MemAvailable"]) * 1024, int(sizes["MemTotal"]) * 1024
