"""The change set of an overlay: what its upper folder says was done to the layers below it.

Costs what was changed, whatever the size of the repository. Called when nothing is mounted on the folder any more and
the scan has opened what was closed. It does not know what lies below, so a new file and a changed one look alike here.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worktrees.changes.union_view import is_opaque, is_whiteout
from worktrees.git.object_format import ABSENT, EXECUTABLE, FILE, LINK

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
