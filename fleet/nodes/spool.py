"""Reports that wait to be fetched, on a node's disk: a manager that was killed finds them when it comes back.

A lock for each order shows, to other processes of this node too, that it is still being worked on: the kernel releases
it however the process ends.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fleet.nodes.frames import Decoder, Frame, FrameError, encode
from fleet.runs.crash_points import reached

MOST_LISTED = 256


@dataclass(frozen=True, slots=True)
class Spool:
    """The orders of one run on this node."""

    folder: Path

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, key: str, frame: Frame) -> None:
        """Keep a report. It is there as a whole or not at all."""
        path = self._path(key)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(encode(frame))
        reached("a node has written a report, and not in its place")
        new.replace(path)
        reached("a node keeps a report")

    def get(self, key: str) -> Frame | None:
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return next(Decoder().feed(data), None)
        except FrameError:
            return None

    def forget(self, key: str) -> None:
        for path in (self._path(key), self._lock_path(key)):
            with suppress(OSError):
                path.unlink()
            reached("a node forgets an order")

    def keys(self) -> list[str]:
        """The orders that are finished or being worked on, by any process."""
        if not self.folder.is_dir():
            return []
        locks = sorted(self.folder.glob("*.lock"))[:MOST_LISTED]
        return [key for path in locks if self.holds(key := path.read_text(encoding="utf-8")) and key]

    def reports(self) -> list[Path]:
        """The reports that were not fetched yet."""
        return sorted(self.folder.glob("*.report"))

    def holds(self, key: str) -> bool:
        """Whether an order is finished, or being worked on. Its report is there before its lock is released."""
        return self.is_locked(key) or self._path(key).exists()

    def is_locked(self, key: str) -> bool:
        try:
            fd = os.open(self._lock_path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    @contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Whether the order is ours to work on while the block lasts."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._lock_path(key), flags, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            os.pwrite(fd, key.encode(), 0)
            reached("a node has taken an order")
            yield True
        finally:
            os.close(fd)

    def _path(self, key: str) -> Path:
        return self.folder / f"{sha256(key.encode()).hexdigest()[:32]}.report"

    def _lock_path(self, key: str) -> Path:
        return self._path(key).with_suffix(".lock")
