"""Watches a box while a command runs in it, and ends it when it takes more than its share of the machine.

The kernel bounds what one process may do; this bounds what all of a box take together: memory, processes (root has
no limit on them) and room on disk. It looks from outside: what it can't look at counts nothing, and floors for the
whole machine stand behind it. A command that is over before the first look is never looked at.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

from anyio import CapacityLimiter, create_task_group, sleep, to_thread
from anyio.lowlevel import RunVar

from fleet.ports import Broken
from worktrees.settings import MIB, BoxLimits

TICK_S = 0.2
WALK_S = 1.0  # between two looks at the disk, and
WALK_PART = 20  # so many times what the last one took
WATCHERS = 2  # threads that look at one time
HEAVY_PART = 8  # where the machine has no room left, boxes go that use more than one in so many of their share
LOW_MEMORY_PART = 20  # no room is left: one in so many of all memory, or
LOW_MEMORY = 256 * MIB
BLOCK = 512
PROC = Path("/proc")
Outcome = TypeVar("Outcome")

_watchers: RunVar[CapacityLimiter] = RunVar("_watchers")


@dataclass(frozen=True, slots=True)
class Disk:
    """What lies below some folders."""

    taken: int = 0
    files: int = 0


ALL = Disk(sys.maxsize, sys.maxsize)


@dataclass(slots=True)
class Guard:
    """Of one command."""

    limits: BoxLimits
    init: Callable[[], int | None]
    """The first process of the box, once there is one."""
    folders: tuple[Path, ...]
    """Where the command may leave files on disk."""
    counts_all: bool
    """Whether everything in the folders is the tenant's; otherwise what is there at the first look is not counted."""
    verdict: str = ""
    """Why the box was ended."""
    _before: Disk | None = None
    _next_walk: float = 0.0

    async def watch(self) -> None:
        """Look again and again. Returns when the box was ended."""
        await sleep(TICK_S)
        while (pid := self.init()) is None:  # noqa: ASYNC110 - on a busy machine making the box takes longer
            await sleep(TICK_S)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # it is over
            return
        try:
            while not self.verdict:
                self.verdict = await to_thread.run_sync(self._problem, pid, limiter=_limiter(), abandon_on_cancel=True)
                if not self.verdict:
                    await sleep(TICK_S)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # and with it everything in its namespace
        finally:
            os.close(pidfd)

    def _problem(self, pid: int) -> str:
        limits = self.limits
        members = tuple(_members(pid, most=limits.processes))
        tasks = sum(count for _, count in members)
        if tasks > limits.processes:
            return f"more than {limits.processes} processes"
        return self._memory_problem([member for member, _ in members]) or self._disk_problem()

    def _memory_problem(self, members: list[int]) -> str:
        share = self.limits.memory_bytes
        taken = _resident(members)
        available, total = _memory_of_machine()
        scarce = available < min(LOW_MEMORY, total // LOW_MEMORY_PART)
        if taken > share or scarce:
            taken = _exact(members)  # pages that processes share were counted for each of them
        if taken > share:
            return f"more than {share // MIB} MiB of memory"
        if scarce and taken > share // HEAVY_PART:
            return f"{taken // MIB} MiB of memory while the machine has hardly any left"
        return ""

    def _disk_problem(self) -> str:
        limits = self.limits
        for folder in self.folders:
            with suppress(OSError):
                status = os.statvfs(folder)
                if status.f_bavail * status.f_frsize < limits.free_bytes:
                    return f"the disk: less than {limits.free_bytes // MIB} MiB are left on it"
        began = monotonic()
        if began < self._next_walk:
            return ""
        if self._before is None:
            self._before = Disk() if self.counts_all else _disk(self.folders, most=ALL)
        before = self._before
        found = _disk(self.folders, most=Disk(before.taken + limits.disk_bytes, before.files + limits.disk_files))
        self._next_walk = monotonic() + max(WALK_S, WALK_PART * (monotonic() - began))
        if found.taken - before.taken > limits.disk_bytes:
            return f"more than {limits.disk_bytes // MIB} MiB on disk"
        if found.files - before.files > limits.disk_files:
            return f"more than {limits.disk_files} files"
        return ""


async def guarded(work: Callable[[], Awaitable[Outcome]], guard: Guard) -> Outcome:
    """Do something with a box beside its guard. Raises `Broken`, and not a group of errors, as `work` does."""
    outcome: Outcome | Broken
    async with create_task_group() as beside:
        beside.start_soon(guard.watch)
        try:
            outcome = await work()
        except Broken as broken:
            outcome = broken
        beside.cancel_scope.cancel()
    if isinstance(outcome, Broken):
        raise outcome
    return outcome


def _members(init: int, *, most: int) -> Iterator[tuple[int, int]]:
    """The processes of a box with the number of their threads; not many more than `most`."""
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
    """Memory of their own, from above: a page that two share by forking counts twice."""
    page, pages = os.sysconf("SC_PAGE_SIZE"), 0
    for pid in members:
        with suppress(OSError, ValueError, IndexError):
            _, resident, shared = (PROC / str(pid) / "statm").read_text().split()[:3]
            pages += int(resident) - int(shared)
    return pages * page


def _exact(members: list[int]) -> int:
    """Memory, each page once, with what lies in files without a name."""
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
    """What lies in folders. Stops looking where it is more than `most`."""
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
    """What is available, and all there is."""
    found = {line.split(":")[0]: line.split()[1] for line in (PROC / "meminfo").read_text().splitlines()}
    return int(found["MemAvailable"]) * 1024, int(found["MemTotal"]) * 1024


def _limiter() -> CapacityLimiter:
    try:
        return _watchers.get()
    except LookupError:
        limiter = CapacityLimiter(WATCHERS)
        _watchers.set(limiter)
        return limiter
