"""Seals: what the kernel says of a file or folder, so that whoever touched it since is seen without looking inside.

The kernel sets the time of change, and no tenant can set it back. A folder's moves when a name comes or goes in it, a
file's with its content, mode and attributes. What changed in the tick that the seal was taken in looks no different to
what comes after: it gets no seal, and is looked at.
"""

import os
import time

Seal = tuple[int, int]
"""The inode, and its time of change in nanoseconds."""

COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE of Linux, which Python has no name for
WHOLE = 1_000_000_000  # where times of change are whole seconds, the file system may know no finer ones
COARSE = 2 * WHOLE


def clock() -> int:
    """The kernel's time for times of change: what is changed from now on gets this or more."""
    return time.clock_gettime_ns(COARSE_CLOCK)


def seal(status: os.stat_result, now: int) -> Seal | None:
    """The seal of what was looked at after `now` was read; None where it would not hold."""
    changed = status.st_ctime_ns
    margin = 0 if changed % WHOLE else COARSE
    return (status.st_ino, changed) if changed + margin < now else None
