"""The change set of an overlay: what its upper folder says was done to the layers below it.

Costs what was changed, whatever the repository weighs. Called when nothing is mounted on the folder any more and the
scan has opened what was closed. It does not know what lies below, so it can't tell a new file from a changed one.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worktrees.view import is_opaque, is_whiteout

Kind = Literal["file", "link", "deleted", "opaque"]
FILE, EXECUTABLE, LINK, NONE = "100644", "100755", "120000", "000000"


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One thing that was done.

    `deleted`: a file, or a folder with all in it. `opaque`: a folder that replaces all that was at its path; what it
    holds now has entries of its own. Other folders are not listed: git knows only files.
    """

    path: str
    kind: Kind
    mode: str = NONE
    """As git writes it."""


def changes(upper: Path) -> tuple[Entry, ...]:
    """By path. What is neither file, link, folder nor whiteout is left out; the scan refuses it before."""
    found: list[Entry] = []
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
                        found.append(Entry(path, "opaque"))
                elif is_whiteout(status):
                    found.append(Entry(path, "deleted"))
                elif stat.S_ISLNK(status.st_mode):
                    found.append(Entry(path, "link", LINK))
                elif stat.S_ISREG(status.st_mode):
                    found.append(Entry(path, "file", EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE))
    return tuple(sorted(found))
