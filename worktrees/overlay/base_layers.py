"""What overlays stand on: checkouts that many share, and thin layers that lead from one to a commit near it.

A checkout costs the repository, so there are few. A commit near one is a layer above it, the few files that differ.
When none is near, an idle checkout moves by the difference. Nothing of either changes as long as somebody stands there.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, Lock, to_thread

from fleet.core.ids import Sha
from worktrees.change import Below
from worktrees.difference import ATTRIBUTES
from worktrees.git import Git, fields
from worktrees.layer import bridge
from worktrees.store import Store
from worktrees.view import View
from worktrees.wipe import make_folder, wipe

OLD = "old"
NEAR = (
    1_000  # paths that a layer of difference may have: one of 500 costs a twelfth of moving a checkout of 10,000 files
)
NEAR_PART = 50  # one in so many of the checkout's, whichever is more
DEEPEST = 8  # layers above a checkout: each is one more place to look for a file
IDLE_LAYERS = 4  # kept for the next lease on the same commit; the tip is leased again and again
IDLE_CHECKOUTS = 1
SWEEP_AT = 16  # folders out of use that may wait to be removed together


@dataclass(slots=True)
class Checkout:
    """All files of a commit, read-only by agreement: workers see it through an overlay."""

    home: Path
    name: str
    ground: "Ground | None" = None
    """What it is now. None while it is on its way; one that never arrived is not used as it is."""
    gitlinks: frozenset[str] = frozenset()
    files: int = 0
    converts: bool = False
    """Whether attributes may make files differ from their blobs."""

    @property
    def tree(self) -> Path:
        return self.home / self.name / "tree"

    @property
    def index(self) -> Path:
        return self.home / self.name / "index"

    @property
    def env(self) -> dict[str, str]:
        return {"GIT_INDEX_FILE": str(self.index)}


@dataclass(slots=True, eq=False)
class Ground:
    """A commit's files: a checkout, or a layer of difference above another ground."""

    below: Below
    checkout: Checkout
    layers: tuple[str, ...] = ()
    """The uppermost first."""
    under: "Ground | None" = None
    tenants: int = 0
    above: int = 0
    """Grounds that stand on this one."""

    @property
    def lowers(self) -> tuple[str, ...]:
        return (*self.layers, f"{self.checkout.name}/tree")

    @property
    def unused(self) -> bool:
        return not self.tenants and not self.above


@dataclass(slots=True)
class Grounds:
    """Of one run."""

    home: Path
    store: Store
    _known: dict[Sha, Ground] = field(default_factory=dict)
    """The longest unused first."""
    _last: Ground | None = None
    _checkouts: list[Checkout] = field(default_factory=list)
    _building: Lock = field(default_factory=lambda: Lock(fast_acquire=True))
    _made: int = 0
    _old: int = 0

    async def take(self, commit: Sha) -> Ground:
        """The ground of a commit, ours to stand on until `leave`. Raises `Broken`."""
        ground = self._standing(commit)
        if ground is None:
            async with self._building:
                ground = self._standing(commit)
                if ground is None:
                    ground = self._last = self._known[commit] = await self._build(commit)
                ground.tenants += 1
                return ground
        ground.tenants += 1
        return ground

    def _standing(self, commit: Sha) -> Ground | None:
        """The ground of a commit. What somebody deleted is forgotten, with all that stands on the same checkout."""
        ground = self._known.get(commit)
        lowers = ground.lowers if ground is not None else ()
        lost = [checkout for checkout in self._checkouts if checkout.ground and not checkout.tree.is_dir()]
        if ground is not None and ground.checkout not in lost and not all((self.home / one).is_dir() for one in lowers):
            lost.append(ground.checkout)
        for checkout in lost:
            idle = self._idle(checkout)
            self._forget([known for known in self._known.values() if known.checkout is checkout])
            self._checkouts.remove(checkout)
            if idle:
                self._put_away(checkout.name)
        return self._known.get(commit)

    def leave(self, ground: Ground) -> None:
        ground.tenants -= 1
        if self._known.get(ground.below.commit) is ground:
            del self._known[ground.below.commit]
            self._known[ground.below.commit] = ground  # to the end: used last

    async def _build(self, commit: Sha) -> Ground:
        await self._tidy()
        for ground in self._candidates():
            above = await self._above(ground, commit)
            if above is not None:
                return above
        idle = next((checkout for checkout in self._checkouts if self._idle(checkout)), None)
        return await self._move(idle or self._new(), commit)

    def _candidates(self) -> list[Ground]:
        """What a new layer could stand on: what was built last, as the tip moves in small steps, and the checkouts."""
        last = [self._last] if self._last is not None and len(self._last.layers) < DEEPEST else []
        return last + [checkout.ground for checkout in reversed(self._checkouts) if checkout.ground is not None]

    def _new(self) -> Checkout:
        self._made += 1
        checkout = Checkout(self.home, f"bases/{self._made}")
        self._checkouts.append(checkout)
        return checkout

    def _idle(self, checkout: Checkout) -> bool:
        return not any(ground.tenants for ground in self._known.values() if ground.checkout is checkout)

    async def _above(self, ground: Ground, commit: Sha) -> Ground | None:
        """The ground of a commit as a layer above another, if it is near."""
        checkout, layers, view = ground.checkout, ground.layers, ground.below.view
        self._made += 1
        folder = self.home / f"layers/{self._made}"
        most = max(NEAR, checkout.files // NEAR_PART)
        ground.above += 1
        try:
            near = await bridge(self.store, folder, ground.below.commit, commit, most=most, converts=checkout.converts)
        except BaseException:
            ground.above -= 1
            raise
        if near is None:
            ground.above -= 1
            return None
        if near.paths:
            layers, view = (f"layers/{folder.name}", *layers), View((folder, *view.layers))
        gitlinks = (ground.below.gitlinks - near.paths) | near.gitlinks
        return Ground(Below(commit, view, gitlinks), checkout, layers, ground)

    async def _move(self, checkout: Checkout, commit: Sha) -> Ground:
        """Move a checkout that nobody stands on."""
        self._forget([ground for ground in self._known.values() if ground.checkout is checkout])
        before, checkout.ground = checkout.ground, None
        with CancelScope(shield=True):  # a checkout that is half on its way is of no use to anybody
            await self._check_out(checkout, commit, before.below.commit if before else None)
        checkout.ground = Ground(Below(commit, View((checkout.tree,)), checkout.gitlinks), checkout)
        return checkout.ground

    async def _check_out(self, checkout: Checkout, commit: Sha, before: Sha | None) -> None:
        at = Git(self.store.git_dir, checkout.tree)
        if before is not None and (await self.store.difference(before, commit)).converts:
            before = None
        if before is not None:
            answer = await at.ask("read-tree", "-m", "-u", before, commit, env=checkout.env)
            before = before if answer.exit_code == 0 else None
        if before is None:
            await wipe(checkout.tree.parent)
            await to_thread.run_sync(make_folder, checkout.tree)
            await at("read-tree", "--reset", "-u", commit, env=checkout.env)
            await to_thread.run_sync((checkout.tree / ".git").touch)  # where the box puts what git there shows
        listed = fields(await at("ls-files", "-z", "--stage", env=checkout.env))
        checkout.files = len(listed)
        checkout.gitlinks = frozenset(line.split("\t", 1)[1] for line in listed if line.startswith("160000 "))
        checkout.converts = any(line.endswith(ATTRIBUTES) for line in listed)

    async def _tidy(self) -> None:
        """Let go of what nobody stands on, but for a little that is likely to be wanted again."""
        unused = [ground for ground in self._known.values() if ground.unused and ground.layers]
        self._forget(unused[: max(0, len(unused) - IDLE_LAYERS)])
        idle = [checkout for checkout in self._checkouts if self._idle(checkout)]
        for checkout in idle[: max(0, len(idle) - IDLE_CHECKOUTS)]:
            self._forget([ground for ground in self._known.values() if ground.checkout is checkout])
            self._checkouts.remove(checkout)
            self._put_away(checkout.name)
        if self._old >= SWEEP_AT:
            await wipe(self.home / OLD)
            self._old = 0

    def _forget(self, grounds: Sequence[Ground]) -> None:
        """From now on nobody new stands there."""
        for ground in grounds:
            del self._known[ground.below.commit]
            self._last = None if self._last is ground else self._last
            if ground.under is not None:
                ground.under.above -= 1
                if ground.layers != ground.under.layers:
                    self._put_away(ground.layers[0])

    def _put_away(self, name: str) -> None:
        """Out of use; removed when enough of it has come together."""
        self._old += 1
        self._made += 1
        (self.home / OLD).mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (self.home / name).rename(self.home / OLD / str(self._made))
