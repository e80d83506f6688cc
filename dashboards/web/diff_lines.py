"""A patch as files with numbered lines, so that a line can be commented on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["same", "add", "remove", "hunk", "note"]
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
MOST_LINES = 5_000  # of one patch; the rest is read with `fleet diff`


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: Kind
    text: str
    old: int | None = None
    new: int | None = None


@dataclass(slots=True)
class DiffFile:
    path: str
    lines: list[DiffLine] = field(default_factory=list)

    @property
    def added(self) -> int:
        return sum(line.kind == "add" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.kind == "remove" for line in self.lines)


def diff_files(patch: str) -> tuple[Sequence[DiffFile], int]:
    """The files of a patch, and how many lines were left out at its end."""
    files: list[DiffFile] = []
    old = new = 0
    in_hunk = False
    rows = patch.split("\n")
    for row in rows[:MOST_LINES]:
        if row.startswith("diff --git "):
            files.append(DiffFile(row.rpartition(" b/")[2].removesuffix('"')))
            in_hunk = False
        elif not files:
            continue
        elif found := HUNK.match(row):
            old, new, in_hunk = int(found[1]), int(found[2]), True
            files[-1].lines.append(DiffLine("hunk", row))
        elif not in_hunk:
            files[-1].lines += [DiffLine("note", row)] if _says_something(row) else []
        elif row.startswith("+"):
            files[-1].lines.append(DiffLine("add", row[1:], new=new))
            new += 1
        elif row.startswith("-"):
            files[-1].lines.append(DiffLine("remove", row[1:], old=old))
            old += 1
        elif row.startswith(" "):
            files[-1].lines.append(DiffLine("same", row[1:], old=old, new=new))
            old, new = old + 1, new + 1
        elif row.startswith("\\"):
            files[-1].lines.append(DiffLine("note", row))
    return files, max(0, len(rows) - MOST_LINES)


def _says_something(row: str) -> bool:
    """Whether a line of a file's head says more than that the file changed."""
    return row.startswith(("new file", "deleted file", "old mode", "new mode", "rename ", "Binary "))
