"""What the set-up command made, as layers that all overlays share: made once for a fingerprint, read-only ever after.

Only what git ignores is kept of it. A tenant who writes there writes into its own upper folder.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anyio import Lock, to_thread

from fleet.core.ids import Sha
from worktrees.box import Place
from worktrees.change import Below, folders_above, ignored
from worktrees.dress import Dresser
from worktrees.git import Git
from worktrees.mount import UPPER, Overlay
from worktrees.view import OPAQUE, is_opaque, is_whiteout
from worktrees.wipe import wipe


@dataclass(frozen=True, slots=True)
class Dress:
    """One layer, and where in the tree its things begin."""

    layer: str
    roots: tuple[str, ...]


@dataclass(slots=True)
class Wardrobe:
    """Of one run."""

    home: Path
    git: Git
    dresser: Dresser
    _made: dict[str, Dress] = field(default_factory=dict)
    _fits: dict[tuple[Sha, str], bool] = field(default_factory=dict)
    _making: Lock = field(default_factory=Lock)

    async def layers(self, below: Below, lowers: tuple[str, ...], mark: str) -> tuple[str, ...]:
        """What to lay above `lowers`. Raises `Broken`."""
        if not self.dresser.needed:
            return ()
        async with self._making:
            fingerprint = await self.dresser.fingerprint(below.commit)
            dress = self._made.get(fingerprint)
            if dress is not None and not await self._fit(dress, below.commit):
                fingerprint = f"{fingerprint}-{below.commit}"
                dress = self._made.get(fingerprint)
            if dress is None:
                dress = self._made[fingerprint] = await self._make(below, lowers, mark)
            return (dress.layer,)

    async def _fit(self, dress: Dress, commit: Sha) -> bool:
        """Whether a commit has no file of its own where a dress has one: that would be hidden."""
        if (commit, dress.layer) not in self._fits:
            found = (
                await self.git("ls-tree", "-r", "-z", "--name-only", commit, "--", *dress.roots) if dress.roots else b""
            )
            self._fits[commit, dress.layer] = not found
        return self._fits[commit, dress.layer]

    async def _make(self, below: Below, lowers: tuple[str, ...], mark: str) -> Dress:
        overlay = Overlay(self.home, lowers, f"dresses/{len(self._made) + 1}")
        await wipe(overlay.upper.parent)  # of one that failed
        overlay.make()
        await to_thread.run_sync(self.dresser.included.lay, below.view, overlay.upper)
        await self.dresser.run(Place(overlay.view, overlay.upper.with_name("scratch"), mark, overlay))
        made = await to_thread.run_sync(lambda: list(_plain(overlay.upper)))
        kept = await ignored(self.git, below.view, made) if made else frozenset()
        await to_thread.run_sync(_keep_only, overlay.upper, made, kept)
        roots = {self._root(below, path) for path in kept}
        return Dress(f"{overlay.seat}/{UPPER}", tuple(sorted(roots)))

    def _root(self, below: Below, path: str) -> str:
        return next((above for above in folders_above(path) if not below.view.is_folder(above)), path)


def _plain(upper: Path) -> Iterator[str]:
    """Everything that is no folder; whiteouts and opaque marks go: what git knows shows as it is."""
    pending = [""]
    while pending:
        folder = pending.pop()
        at = upper / folder
        at.chmod(at.stat().st_mode | 0o700)
        if is_opaque(os.fspath(at)):
            os.removexattr(at, OPAQUE)
        with os.scandir(at) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif is_whiteout(entry.stat(follow_symlinks=False)):
                    Path(entry.path).unlink()
                else:
                    yield path


def _keep_only(upper: Path, made: list[str], kept: frozenset[str]) -> None:
    for path in made:
        if path not in kept:
            (upper / path).unlink()
