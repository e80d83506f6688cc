"""Folders on top of each other, read the way an overlay shows them, without mounting anything.

An upper folder hides what lies below it: by a file of the same name, by a whiteout (the character device 0:0) in the
place of a removed name, and by a folder marked opaque, which shows nothing from below.
"""

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worktrees.git.object_format import ABSENT, EXECUTABLE, FILE, LINK

OPAQUE = "user.overlay.opaque"
NOT_FOUND = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
MOST_STEPS = 200  # names on the way to a link's goal; a longer way is treated as hostile


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:  # no such attribute, or a file system without any
        return False


@dataclass(frozen=True, slots=True)
class View:
    """Several folders as one; the first is the uppermost."""

    layers: tuple[Path, ...]

    def find(self, path: str) -> tuple[Path, os.stat_result] | None:
        """The file or folder that a path shows, and its status; None where there is none."""
        for layer in self.layers:
            status, hides = _look(layer, path)
            if status is not None:
                return layer / path, status
            if hides:
                return None
        return None

    def is_file(self, path: str) -> bool:
        """A file, a link or anything else that is not a folder."""
        entry = self.find(path)
        return entry is not None and not stat.S_ISDIR(entry[1].st_mode)

    def is_folder(self, path: str) -> bool:
        entry = self.find(path)
        return entry is not None and stat.S_ISDIR(entry[1].st_mode)

    def files(self, folder: str) -> Iterator[str]:
        """Everything below a folder that is not a folder, unsorted."""
        pending = [folder]
        while pending:
            parent = pending.pop()
            for name in self._names(parent):
                path = f"{parent}/{name}" if parent else name
                if self.is_folder(path):
                    pending.append(path)
                else:
                    yield path

    def leads_out(self, link: str) -> bool:
        """Whether a link is absolute or leaves the view, as written or as the folders on its way resolve it."""
        folder, goal = posixpath.dirname(link), self._goal(link) or ""
        if goal.startswith("/") or posixpath.normpath(posixpath.join(folder, goal)).split("/", 1)[0] == "..":
            return True
        position, ahead = [part for part in folder.split("/") if part], goal.split("/")
        for _ in range(MOST_STEPS):
            if not ahead:
                return False
            name = ahead.pop(0)
            if name == "..":
                if not position:
                    return True
                position.pop()
            elif name not in {"", "."}:
                inner = self._goal("/".join((*position, name)))
                if inner is None:
                    position.append(name)
                elif inner.startswith("/"):
                    return True
                else:
                    ahead = [*inner.split("/"), *ahead]
        return True

    def _goal(self, path: str) -> str | None:
        """The goal of a link; None where the path is not a link."""
        entry = self.find(path)
        return str(entry[0].readlink()) if entry is not None and stat.S_ISLNK(entry[1].st_mode) else None

    def _names(self, folder: str) -> list[str]:
        names: dict[str, bool] = {}
        for layer in self.layers:
            status, hides = _look(layer, folder)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                break
            if status is not None:
                with os.scandir(layer / folder) as entries:
                    for entry in entries:
                        names.setdefault(entry.name, not is_whiteout(entry.stat(follow_symlinks=False)))
                hides = is_opaque(os.fspath(layer / folder))
            if hides:
                break
        return [name for name, is_visible in names.items() if is_visible]


def _look(layer: Path, path: str) -> tuple[os.stat_result | None, bool]:
    """The status of a path in one layer; where it has none, also whether it hides what lies below."""
    full, opaque, status = os.fspath(layer), False, None
    parts = path.split("/")
    for number, part in enumerate(parts, start=1):
        full = f"{full}/{part}"
        try:
            status = os.lstat(full)
        except OSError as error:
            if error.errno not in NOT_FOUND:
                raise
            return None, opaque
        if is_whiteout(status):
            return None, True
        if number < len(parts):
            if not stat.S_ISDIR(status.st_mode):
                return None, True
            opaque = opaque or is_opaque(full)
    return status, False


# ---- overlay changes -------------------------------------------------------------------------------------------------
# The change set of an overlay: what its upper folder says was done to the layers below it.
#
# Costs what was changed, whatever the size of the repository. Called when nothing is mounted on the folder any more
# and the scan has opened what was closed. It does not know what lies below, so a new file and a changed one look
# alike here.


Kind = Literal["file", "link", "deleted", "opaque"]


@dataclass(frozen=True, slots=True, order=True)
class OverlayChange:
    """One change to a path.

    `deleted`: a file, or a folder with all in it. `opaque`: a folder that replaces all that was at its path; what it
    holds now has entries of its own. Other folders are not listed: git knows only files.
    """

    path: str
    kind: Kind
    mode: str = ABSENT
    """As git writes it."""


def read_changes(upper: Path) -> tuple[OverlayChange, ...]:
    """The changes by path. Leaves out what is neither file, link, folder nor whiteout; the scan refuses it before."""
    changes: list[OverlayChange] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(upper / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                    if is_opaque(entry.path):
                        changes.append(OverlayChange(path, "opaque"))
                elif is_whiteout(status):
                    changes.append(OverlayChange(path, "deleted"))
                elif stat.S_ISLNK(status.st_mode):
                    changes.append(OverlayChange(path, "link", LINK))
                elif stat.S_ISREG(status.st_mode):
                    mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE
                    changes.append(OverlayChange(path, "file", mode))
    return tuple(sorted(changes))
