"""One registered worktree: its folder, git's own folder for it, and what a box is told of it."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from worktrees.box import Place
from worktrees.git import Git
from worktrees.sparse import CONFIG


@dataclass(frozen=True, slots=True)
class Slot:
    """One registered worktree."""

    tree: Path
    admin: Path
    """Git's own folder for it, in the store: index and HEAD."""

    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    sparse: bool = False
    """Whether it may hold only some folders."""

    @property
    def git(self) -> Git:
        return Git(self.admin, self.tree)

    @property
    def config(self) -> Mapping[str, str]:
        """What git has to be told when it looks at the files."""
        return CONFIG if self.sparse else {}

    @property
    def place(self) -> Place:
        mark, scratch = f"{self.tree.parent.name}/{self.tree.name}", self.tree.with_name(f"{self.tree.name}.scratch")
        return Place(tree=self.tree, scratch=scratch, mark=mark, environment=self.environment)

    @property
    def files(self) -> int:
        """How many files git put there: the header of an index says so."""
        with suppress(OSError), (self.admin / "index").open("rb") as index:
            return int.from_bytes(index.read(12)[8:])
        return 0

    @property
    def pointer(self) -> bytes:
        """What the worktree's `.git` file says."""
        return b"gitdir: " + os.fsencode(self.admin) + b"\n"

    def points(self) -> bool:
        """Whether the worktree's `.git` is still the file that we left there."""
        at = self.tree / ".git"
        return not at.is_symlink() and at.is_file() and at.read_bytes() == self.pointer
