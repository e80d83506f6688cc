"""A change as its reviewer sees it: each line of the diff with its number, so that a finding can name its place.

The counts in the head of a hunk say where it ends, so no line of a file can pass for the head of another file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fleet.core.verdicts.oddities import CUT

LONGEST_LINE = 1_000  # characters of a line that a reviewer sees
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_HEAD = re.compile(r"^diff --git \"?a/(.*?)\"? \"?b/(.*?)\"?$")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line of a diff."""

    sign: str
    """`+` for one that the change adds, `-` for one that it removes, a space for one that it leaves."""
    number: int
    """In the file as the change leaves it; in the file before it for a line that the change removes."""
    text: str


@dataclass(slots=True)
class PatchFile:
    """One file of a diff."""

    path: str
    lines: list[PatchLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What else is said of it: its mode, its earlier name, that it is binary."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A diff whose lines can be named."""

    files: Mapping[str, PatchFile]
    is_whole: bool
    """Whether nothing of it was left out."""

    def line(self, file: str, number: int) -> PatchLine | None:
        """The line of the diff that a finding names. One that is added or left goes before one that is removed."""
        lines = self.files[file].lines if file in self.files else ()
        there = [line for line in lines if line.number == number]
        return next((line for line in there if line.sign != "-"), there[0] if there else None)

    def lines(self, file: str, sign: str) -> frozenset[str]:
        """The texts of the lines that it adds to a file, or removes."""
        lines = self.files[file].lines if file in self.files else ()
        return frozenset(line.text for line in lines if line.sign == sign)

    @property
    def text(self) -> str:
        """All of it, for a reviewer."""
        return "\n".join(_shown(file) for file in self.files.values())


def parse_patch(patch: str) -> Patch:
    """The files and lines of what `git diff` prints."""
    files = dict[str, PatchFile]()
    for file in _files(patch.removesuffix("\n").split("\n")):
        files[file.path] = file
    return Patch(files, is_whole=CUT.search(patch) is None)


def _files(lines: list[str]) -> Iterator[PatchFile]:
    file: PatchFile | None = None
    old = new = old_left = new_left = 0
    for line in lines:
        if old_left > 0 or new_left > 0:
            sign, text = line[:1] or " ", line[1:]
            if sign == "\\":
                continue
            if file is not None:
                file.lines.append(PatchLine(sign, old if sign == "-" else new, text))
            old, old_left = (old + 1, old_left - 1) if sign in {"-", " "} else (old, old_left)
            new, new_left = (new + 1, new_left - 1) if sign in {"+", " "} else (new, new_left)
        elif head := _HEAD.match(line):
            if file is not None:
                yield file
            file = PatchFile(head[2])
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_left = 1 if hunk[2] is None else int(hunk[2])
            new_left = 1 if hunk[4] is None else int(hunk[4])
        elif file is not None and line and not line.startswith(("index ", "--- ", "+++ ", "\\")):
            file.notes.append(line)
    if file is not None:
        yield file


def _shown(file: PatchFile) -> str:
    lines = [f"=== {_one_line(file.path)}", *(f"    ({_one_line(note)})" for note in file.notes)]
    before = 0
    for line in file.lines:
        if line.sign != "-" and line.number > before + 1:
            lines.append("    ...")
        before = line.number if line.sign != "-" else before
        lines.append(f"{line.number:6} {line.sign} {_one_line(line.text)}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    """A line in which nothing ends it or turns it around."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text[:LONGEST_LINE])
