"""What differs between two commits, told by one git program that stays.

Between distant commits most folders on the way are new to us: git compares them five times as fast as it could hand
them over.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from fleet.core.facts import Failure
from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.git import fields
from worktrees.service import Gone, Service
from worktrees.upper import NONE

ATTRIBUTES = ".gitattributes"
GITLINK = "160000"
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
OPTIONS = ("-r", "-z", "--raw", "--no-renames", "--always", "--format=%H %P", "--stdin")
END = b"end\n"  # git hands back what is no id, and with it all that it has written so far


@dataclass(frozen=True, slots=True)
class Difference:
    """From one commit to another, by path: mode and blob of what is there, and what is not there any more."""

    there: tuple[tuple[str, str, Sha], ...]
    gone: tuple[str, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*self.gone, *(path for path, _, _ in self.there)))

    @property
    def files(self) -> tuple[tuple[str, str, Sha], ...]:
        return tuple(each for each in self.there if each[1] != GITLINK)

    @property
    def converts(self) -> bool:
        """Whether files may look different now although they are the same to git."""
        return any(path.endswith(ATTRIBUTES) for path in self.paths)

    @property
    def gitlinks(self) -> frozenset[str]:
        return frozenset(path for path, mode, _ in self.there if mode == GITLINK)


class Differences:
    """Of the commits of one repository. Blocks."""

    def __init__(self, git_dir: Path) -> None:
        self._git = Service(git_dir, "diff-tree", *OPTIONS)

    def close(self) -> None:
        self._git.close()

    def between(self, old: Sha, new: Sha) -> Difference:
        """Raises `Broken` where one of them is not there."""
        if COMMIT.fullmatch(old) is None or COMMIT.fullmatch(new) is None:
            raise ValueError(f"{old!r} or {new!r} is no commit")
        if old == new:
            return Difference((), ())
        try:
            return _parsed(self._ask(old, new))
        except Gone:  # killed while it idled, or in the middle
            try:
                return _parsed(self._ask(old, new))
            except Gone as gone:
                raise _broken(f"git does not tell what differs between {old} and {new}: {gone}") from gone

    def _ask(self, old: Sha, new: Sha) -> bytes:
        """Of `new`, with `old` for its parent. A git that leaves one of them out is not asked again."""
        asked = b"%b %b" % (new.encode(), old.encode())
        with self._git.conversation() as git:
            git.send(asked + b"\n" + END)
            answer = git.whole(_is_whole)
            if not answer.startswith(asked + b"\0"):
                raise _broken(f"the store has no commit {new}, or {old} is none")
        return answer


def _is_whole(answer: bytearray) -> bool:
    """After the two ids come pairs: how it differs, and where. Somebody may call a file like our end."""
    if not answer.endswith(END):
        return False
    *before, last = answer.split(b"\0")
    return last == END and len(before) % 2 == min(1, len(before))


def _parsed(answer: bytes) -> Difference:
    parts = fields(answer)[1:-1]
    there, gone = list[tuple[str, str, Sha]](), list[str]()
    for raw, path in zip(parts[::2], parts[1::2], strict=True):
        _, mode, _, blob, _ = raw.split(" ")  # the first pair begins on a new line
        if mode == NONE:
            gone.append(path)
        else:
            there.append((path, mode, blob))
    return Difference(tuple(there), tuple(gone))


def _broken(summary: str) -> Broken:
    return Broken(Failure(kind="infrastructure", summary=summary))
