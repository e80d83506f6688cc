"""Folders on top of each other, read the way an overlay shows them, without mounting anything.

An upper folder hides what lies below it: by a file of the same name, by a whiteout (the character device 0:0) that says
the name is gone, and by a folder marked opaque, of which nothing below is seen.
"""

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPAQUE = "user.overlay.opaque"
NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
MOST_LINKS = 40  # what the kernel follows, too
MOST_STEPS = 200  # names on the way to a link's goal; who needs more has something to hide


class _Gone:
    """Hidden here: what lies below does not count."""


GONE: Final = _Gone()


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:  # no such attribute, or a file system without any
        return False


@dataclass(frozen=True, slots=True)
class View:
    """What stands in several folders together; the first is the uppermost."""

    layers: tuple[Path, ...]

    def find(self, path: str) -> tuple[Path, os.stat_result] | None:
        """Where a path really lies and what it is; None where it is not."""
        for layer in self.layers:
            found = _look(layer, path)
            if isinstance(found, _Gone):
                return None
            if found is not None:
                return layer / path, found
        return None

    def is_file(self, path: str) -> bool:
        """A file, a link or anything else that is no folder."""
        found = self.find(path)
        return found is not None and not stat.S_ISDIR(found[1].st_mode)

    def is_folder(self, path: str) -> bool:
        found = self.find(path)
        return found is not None and stat.S_ISDIR(found[1].st_mode)

    def files(self, folder: str) -> Iterator[str]:
        """Everything below a folder that is no folder, unsorted."""
        pending = [folder]
        while pending:
            at = pending.pop()
            for name in self._names(at):
                path = f"{at}/{name}" if at else name
                if self.is_folder(path):
                    pending.append(path)
                else:
                    yield path

    def leads_out(self, link: str) -> bool:
        """Whether a link is absolute or leaves the view, as written or as the folders on its way resolve it."""
        goal = self._goal(link)
        written = posixpath.normpath(posixpath.join(posixpath.dirname(link), goal))
        if goal.startswith("/") or written.split("/", 1)[0] == "..":
            return True
        at = [part for part in posixpath.dirname(link).split("/") if part]
        ahead, left, steps = goal.split("/"), MOST_LINKS, 0
        while ahead:
            part = ahead.pop(0)
            steps += 1
            if steps > MOST_STEPS:
                return True
            if part == "..":
                if not at:
                    return True
                at.pop()
            elif part not in {"", "."}:
                found = self.find("/".join((*at, part)))
                if found is None or not stat.S_ISLNK(found[1].st_mode):
                    at.append(part)
                    continue
                left -= 1
                goal = str(found[0].readlink())
                if goal.startswith("/") or left < 0:
                    return True
                ahead = [*goal.split("/"), *ahead]
        return False

    def _goal(self, link: str) -> str:
        found = self.find(link)
        return "" if found is None else str(found[0].readlink())

    def _names(self, folder: str) -> list[str]:
        names: dict[str, bool] = {}
        for layer in self.layers:
            found = _look(layer, folder) if folder else layer.lstat()
            if found is None:
                continue
            if isinstance(found, _Gone) or not stat.S_ISDIR(found.st_mode):
                break
            with os.scandir(layer / folder) as entries:
                for entry in entries:
                    names.setdefault(entry.name, not is_whiteout(entry.stat(follow_symlinks=False)))
            if is_opaque(os.fspath(layer / folder)):
                break
        return [name for name, there in names.items() if there]


def _look(layer: Path, path: str) -> os.stat_result | _Gone | None:
    """What one layer has at a path: something, nothing, or a reason to look no deeper."""
    at, found = os.fspath(layer), None
    opaque = False
    parts = path.split("/")
    for number, part in enumerate(parts, start=1):
        at = f"{at}/{part}"
        try:
            found = os.lstat(at)
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise
            return GONE if opaque else None
        if is_whiteout(found):
            return GONE
        if number < len(parts):
            if not stat.S_ISDIR(found.st_mode):
                return GONE
            opaque = opaque or is_opaque(at)
    return found
