"""What overlays stand on: checkouts that many share, and thin layers that lead from one to a commit near it.

A checkout costs the repository, so there are few. A commit near one is a layer above it, the few files that differ.
When none is near, an idle checkout moves by the difference. Nothing of either changes as long as somebody stands there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, Lock, to_thread

from fleet.core.ids import Sha
from worktrees.change import Below
from worktrees.git import Git, fields
from worktrees.layer import ATTRIBUTES, Difference, difference, fill
from worktrees.store import Store
from worktrees.view import View
from worktrees.wipe import make_folder, wipe

NEAR = 300  # paths that a layer of difference may have, or
NEAR_PART = 50  # one in so many of the checkout's, whichever is more
IDLE_LAYERS = 8  # kept for the next lease on the same commit; the tip is leased again and again
IDLE_CHECKOUTS = 1


@dataclass(slots=True)
class Checkout:
    """All files of a commit, read-only by agreement: workers see it through an overlay."""

    home: Path
    name: str
    commit: Sha | None = None
    """None while it is on its way; one that never arrived is not used again."""
    gitlinks: frozenset[str] = frozenset()
    files: int = 0
    converts: bool = False
    """Whether attributes may make files differ from their blobs."""
    grounds: int = 0

    @property
    def tree(self) -> Path:
        return self.home / self.name / "tree"

    @property
    def env(self) -> dict[str, str]:
        return {"GIT_INDEX_FILE": str(self.home / self.name / "index")}


@dataclass(slots=True)
class Ground:
    """A commit's files: a checkout, or a layer of difference above one."""

    below: Below
    checkout: Checkout
    layer: str | None
    standing: int = 0

    @property
    def lowers(self) -> tuple[str, ...]:
        tree = f"{self.checkout.name}/tree"
        return (tree,) if self.layer is None else (self.layer, tree)


@dataclass(slots=True)
class Grounds:
    """Of one run."""

    home: Path
    store: Store
    _known: dict[Sha, Ground] = field(default_factory=dict)
    """The longest unused first."""
    _checkouts: list[Checkout] = field(default_factory=list)
    _building: Lock = field(default_factory=Lock)
    _made: int = 0

    async def take(self, commit: Sha) -> Ground:
        """The ground of a commit, ours to stand on until `leave`. Raises `Broken`."""
        ground = self._known.get(commit)
        if ground is None:
            async with self._building:
                ground = self._known.get(commit)
                if ground is None:
                    ground = self._known[commit] = await self._build(commit)
                ground.standing += 1
                return ground
        ground.standing += 1
        return ground

    def leave(self, ground: Ground) -> None:
        ground.standing -= 1
        if self._known.pop(ground.below.commit, None) is ground:
            self._known[ground.below.commit] = ground  # to the end: used last

    async def _build(self, commit: Sha) -> Ground:
        await self._tidy()
        for checkout in reversed(self._checkouts):
            near = await self._near(checkout, commit)
            if near is None:
                continue
            if not near.paths:
                return Ground(Below(commit, View((checkout.tree,)), checkout.gitlinks), checkout, None)
            return await self._above(checkout, commit, near)
        idle = next((checkout for checkout in self._checkouts if self._idle(checkout)), None)
        return await self._move(idle or self._new(), commit)

    async def _near(self, checkout: Checkout, commit: Sha) -> Difference | None:
        """How to get from a checkout to a commit, if that is worth a layer."""
        if checkout.commit is None:
            return None
        found = await difference(self.store, checkout.commit, commit)
        close = len(found.paths) <= max(NEAR, checkout.files // NEAR_PART)
        return found if close and not found.converts else None

    def _new(self) -> Checkout:
        self._made += 1
        checkout = Checkout(self.home, f"bases/{self._made}")
        self._checkouts.append(checkout)
        return checkout

    def _idle(self, checkout: Checkout) -> bool:
        return not any(ground.standing for ground in self._known.values() if ground.checkout is checkout)

    async def _move(self, checkout: Checkout, commit: Sha) -> Ground:
        """Move a checkout that nobody stands on."""
        layers = self._forget([known for known, ground in self._known.items() if ground.checkout is checkout])
        at, before, checkout.commit = Git(self.store.git_dir, checkout.tree), checkout.commit, None
        with CancelScope(shield=True):  # a checkout that is half on its way is of no use to anybody
            if before is not None and (await difference(self.store, before, commit)).converts:
                before = None
            if before is not None:
                answer = await at.ask("read-tree", "-m", "-u", before, commit, env=checkout.env)
                before = before if answer.exit_code == 0 else None
            if before is None:
                await wipe(checkout.tree.parent)
                await to_thread.run_sync(make_folder, checkout.tree)
                await at("read-tree", "--reset", "-u", commit, env=checkout.env)
                await to_thread.run_sync((checkout.tree / ".git").touch)  # where the box puts what git there shows
            await self._look_over(checkout, at)
        checkout.commit = commit
        await self._wipe(layers)
        return Ground(Below(commit, View((checkout.tree,)), checkout.gitlinks), checkout, None)

    async def _look_over(self, checkout: Checkout, at: Git) -> None:
        listed = fields(await at("ls-files", "-z", "--stage", env=checkout.env))
        checkout.files = len(listed)
        checkout.gitlinks = frozenset(line.split("\t", 1)[1] for line in listed if line.startswith("160000 "))
        checkout.converts = any(line.endswith(ATTRIBUTES) for line in listed)

    async def _above(self, checkout: Checkout, commit: Sha, near: Difference) -> Ground:
        self._made += 1
        name = f"layers/{self._made}"
        folder = self.home / name
        await to_thread.run_sync(make_folder, folder)
        await fill(self.store, folder, commit, near, converts=checkout.converts)
        gitlinks = (checkout.gitlinks - near.paths) | near.gitlinks
        return Ground(Below(commit, View((folder, checkout.tree)), gitlinks), checkout, name)

    async def _tidy(self) -> None:
        """Let go of what nobody stands on, but for a little that is likely to be wanted again."""
        idle = [commit for commit, ground in self._known.items() if not ground.standing and ground.layer]
        folders = self._forget(idle[: max(0, len(idle) - IDLE_LAYERS)])
        unused = [checkout for checkout in self._checkouts if self._idle(checkout)]
        for checkout in unused[: max(0, len(unused) - IDLE_CHECKOUTS)]:
            folders += self._forget([known for known, ground in self._known.items() if ground.checkout is checkout])
            folders.append(checkout.name)
            self._checkouts.remove(checkout)
        await self._wipe(folders)

    def _forget(self, commits: Sequence[Sha]) -> list[str]:
        """From now on nobody new stands there. The layers that go with it."""
        grounds = [self._known.pop(commit) for commit in commits]
        return [ground.layer for ground in grounds if ground.layer is not None]

    async def _wipe(self, folders: Sequence[str]) -> None:
        for folder in folders:
            await wipe(self.home / folder)
