"""The objects that a box may see where history holds the answer: those of a commit and of all that is behind it.

The store of a target holds every commit up to the newest. So its objects are not shown: the history of one commit, the
root, is packed once, and of every other commit what it has beyond that.
"""

from dataclasses import dataclass, field
from pathlib import Path

from anyio import Lock

from fleet.core.base.ids import Sha
from worktrees.base.fs import make_folder
from worktrees.git.program import Git


@dataclass(slots=True)
class PastObjects:
    """The folders of objects of one run, made when they are first asked for."""

    git: Git
    folder: Path
    root: Sha
    """The commit whose history most others have behind them."""
    _packed: dict[Sha, Path] = field(default_factory=dict)
    _turn: Lock = field(default_factory=Lock)

    async def objects(self, commit: Sha) -> tuple[Path, ...]:
        """The folders that hold a commit, what is behind it, and at most the root's history besides."""
        async with self._turn:
            if self.root not in self._packed:
                self._packed[self.root] = await self._pack(self.root)
            if commit not in self._packed:
                self._packed[commit] = await self._pack(commit, without=self.root)
            return tuple(dict.fromkeys((self._packed[self.root], self._packed[commit])))

    async def _pack(self, commit: Sha, *, without: Sha | None = None) -> Path:
        objects = self.folder / commit / "objects"
        make_folder(objects / "pack")
        asked = f"{commit}\n" if without is None else f"{commit}\n^{without}\n"
        pack = ("pack-objects", "-q", "--revs", "--delta-base-offset", "--missing=allow-any", "--threads=1")
        await self.git(*pack, str(objects / "pack" / "pack"), data=asked.encode())
        return objects
