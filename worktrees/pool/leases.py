"""A few worktrees, registered with git once per run and leased again and again.

Registering is serialised (it races inside git); moving a slot to another base costs the difference and runs beside
everything else. A slot is put in order when it is given back, so that the next tenant waits for the difference only.
It is exclusively its tenant's, so a lock file left in it belongs to a git of ours that was killed.
"""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, to_thread

from fleet.core.facts import Failure
from fleet.core.ids import RunId, Sha
from fleet.points import reached
from fleet.ports import Broken
from worktrees.dress import Dresser, state_of
from worktrees.git import fields
from worktrees.handover import HandOver, hand_over
from worktrees.mount import discard
from worktrees.scan import scan_tree
from worktrees.settings import HandSettings
from worktrees.slot import Slot
from worktrees.sparse import Cone, tell
from worktrees.store import Store
from worktrees.strays import Odd
from worktrees.surroundings import port_environment
from worktrees.view import View
from worktrees.warm import SMALL, move
from worktrees.wipe import make_folder, size_of, wipe


@dataclass(frozen=True, slots=True)
class Dressed:
    """What the set-up command left in a slot: for which fingerprint, where, and how it looked then."""

    fingerprint: str
    roots: tuple[str, ...]
    state: str
    files: int


def slots_dir(store: Store, run_id: RunId) -> Path:
    return store.home / "slots" / run_id


@dataclass(slots=True)
class Pool:
    """The slots of one run. Grows with the number of leases held at once."""

    store: Store
    run: RunId
    settings: HandSettings
    dresser: Dresser
    _free: list[Slot] = field(default_factory=list)
    _made: int = 0
    _at: dict[Slot, Sha] = field(default_factory=dict)
    _cones: dict[Slot, Cone | None] = field(default_factory=dict)
    _handed: dict[Slot, HandOver] = field(default_factory=dict)
    _tidied: set[Slot] = field(default_factory=set)
    """Those that hold exactly what was handed over."""
    _dressed: dict[Slot, Dressed] = field(default_factory=dict)
    _sizes: dict[Slot, int] = field(default_factory=dict)
    """Bytes of idle slots, where the pool has a limit."""
    _gitlinks: dict[Sha, tuple[str, ...]] = field(default_factory=dict)

    @asynccontextmanager
    async def lease(self, base: Sha, cone: Cone | None = None) -> AsyncIterator[Slot]:
        """A slot that holds exactly `base`, or of it what is in the cone. Raises `Broken`.

        A slot that can't be made ready is not used again.
        """
        slot = self._take(cone) or await self._add(base)
        self._cones[slot] = cone
        self._sizes.pop(slot, None)
        await self._evict()
        try:
            await self._prepare(slot, base)
        except OSError as error:
            raise Broken(Failure(kind="infrastructure", summary=f"a worktree can't be made ready: {error}")) from error
        try:
            reached("a worktree is leased")
            yield slot
        finally:
            try:
                await self._tidy(slot)
            finally:
                self._free.append(slot)

    def _take(self, cone: Cone | None) -> Slot | None:
        """The slot that was given back last, of those that held the same folders if there are any."""
        alike = [slot for slot in self._free if self._cones.get(slot) == cone]
        slot = next(reversed(alike or self._free), None)
        if slot is not None:
            self._free.remove(slot)
        return slot

    async def _add(self, base: Sha) -> Slot:
        self._made += 1
        number = self._made
        tree = slots_dir(self.store, self.run) / str(number)
        async with self.store.administration():
            with CancelScope(shield=True):  # half a registration would be in everybody's way
                await to_thread.run_sync(make_folder, tree.parent)
                await self.store.git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(tree), base)
                reached("a worktree is registered, and empty")
        admin = await to_thread.run_sync(_admin_of, tree)
        return Slot(tree, admin, port_environment(self.settings, number), self.settings.sparse)

    async def _prepare(self, slot: Slot, base: Sha) -> None:
        last, handed, tidied = self._at.pop(slot, base), self._handed.pop(slot, None), slot in self._tidied
        self._tidied.discard(slot)
        _drop_locks(slot)
        if slot.place.scratch.exists() and not discard(slot.place.scratch, most=SMALL):
            await wipe(slot.place.scratch)
        if handed is None or not await self._move(slot, handed, base, tidied=tidied):
            await self._go_through(slot, last, base)
        self._at[slot] = base

    async def _tidy(self, slot: Slot) -> None:
        """Take away what a tenant left, if the quick way does it; else whoever leases it next waits for all of that."""
        handed = self._handed.get(slot)
        if handed is not None:
            try:
                if slot.points():
                    self._handed[slot] = await move(self.store, slot, handed, handed.base)
                    self._tidied.add(slot)
            except (Odd, OSError, Broken):
                del self._handed[slot]

    async def _move(self, slot: Slot, handed: HandOver, base: Sha, *, tidied: bool) -> bool:
        """Whether a slot could be made ready the quick way."""
        with suppress(Odd, OSError, Broken):
            if slot.points():
                self._handed[slot] = await move(self.store, slot, handed, base, tidied=tidied)
        return slot in self._handed

    async def _go_through(self, slot: Slot, last: Sha, base: Sha) -> None:
        """Look at everything in a slot, whatever it is by now, and leave it with exactly the base and its dress."""
        converts = last != base and (await self.store.difference(last, base)).converts
        if converts or not await to_thread.run_sync(self._is_safe, slot):
            await self._rebuild(slot)
        if slot.sparse:
            await to_thread.run_sync(tell, slot.admin, self._cones[slot])
        await slot.git("checkout", "--quiet", "--force", "--detach", base, "--", env=slot.config)
        kept = await self._keeps(slot, base)
        rules = (part for root in kept or () for part in ("-e", _rule(root)))
        await slot.git("clean", "--quiet", "-ffdx", *rules, env=slot.config)
        if kept is None and self.dresser.needed:
            await self._dress(slot, base)
        await self._empty_gitlinks(slot, base)
        boxed = self.settings.sandbox == "bubblewrap"  # without it git's own folder is in reach
        if boxed and not self.dresser.needed and not slot.sparse:
            handed = await hand_over(self.store, slot, base)
            if handed is not None:
                self._handed[slot] = handed

    def handed(self, slot: Slot) -> HandOver | None:
        """How a slot was handed over, where that is known."""
        return self._handed.get(slot)

    async def _keeps(self, slot: Slot, base: Sha) -> tuple[str, ...] | None:
        """What the set-up command made in a slot, if it is what this base needs and nobody touched it since."""
        dressed = self._dressed.pop(slot, None)
        if dressed is None or dressed.fingerprint != await self.dresser.fingerprint(base):
            return None
        state, _ = await to_thread.run_sync(state_of, slot.tree, dressed.roots)
        if state != dressed.state:
            return None
        self._dressed[slot] = dressed
        return dressed.roots

    async def _dress(self, slot: Slot, base: Sha) -> None:
        await to_thread.run_sync(self.dresser.included.lay, View((slot.tree,)), slot.tree)
        try:
            await self.dresser.run(slot.place)
        except Broken:
            self._free.append(slot)  # nothing is wrong with the slot
            raise
        if not await to_thread.run_sync(self._is_safe, slot):
            why = "the set-up command leaves a worktree that git must not walk"
            raise Broken(Failure(kind="configuration", summary=why))
        await slot.git("checkout", "--quiet", "--force", "--detach", base, "--", env=slot.config)
        await slot.git("clean", "--quiet", "-ffd", env=slot.config)
        listed = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        roots = tuple(path.rstrip("/") for path in fields(await slot.git(*listed)))
        state, files = await to_thread.run_sync(state_of, slot.tree, roots)
        self._dressed[slot] = Dressed(await self.dresser.fingerprint(base), roots, state, files)

    async def _evict(self) -> None:
        """Keep to the limit on disk: the worktrees that are idle longest go."""
        limit = self.settings.max_pool_bytes
        if limit is None:
            return
        for slot in self._free:
            if slot not in self._sizes:
                self._sizes[slot] = await size_of(slot.tree)
        while self._free and sum(self._sizes.get(slot, 0) for slot in self._free) > limit:
            slot = self._free.pop(0)
            self._sizes.pop(slot, None)
            self._dressed.pop(slot, None)
            self._handed.pop(slot, None)
            self._tidied.discard(slot)
            self._cones.pop(slot, None)
            async with self.store.administration():
                await wipe(slot.tree)
                await wipe(slot.place.scratch)
                await self.store.git("worktree", "prune", "--expire=now")

    def most_files(self, slot: Slot) -> int:
        """How many files and folders a slot may hold: git's, those of the set-up, and what a tenant may leave."""
        dressed = self._dressed.get(slot)
        return self.settings.max_files + 2 * slot.files + 1 + (dressed.files if dressed else 0)

    def _is_safe(self, slot: Slot) -> bool:
        """Whether git may walk what the last tenant left."""
        return slot.points() and not scan_tree(slot.tree, max_files=self.most_files(slot))

    async def _rebuild(self, slot: Slot) -> None:
        await wipe(slot.tree)
        await to_thread.run_sync(_make_empty, slot)

    async def _empty_gitlinks(self, slot: Slot, base: Sha) -> None:
        """`git clean` leaves what lies in the folder of a submodule alone."""
        if base not in self._gitlinks:
            listed = fields(await self.store.git("ls-tree", "-r", "-z", base))
            self._gitlinks[base] = tuple(line.split("\t", 1)[1] for line in listed if line.startswith("160000 "))
        for path in self._gitlinks[base]:
            await wipe(slot.tree / path)
            await to_thread.run_sync(make_folder, slot.tree / path)


async def remove_slots(store: Store, run_id: RunId) -> None:
    """Remove what is there of a run's slots, whoever left it; also of those that only git still knows."""
    folder = slots_dir(store, run_id)
    if folder.exists() or await to_thread.run_sync(_registered, store):
        async with store.administration():
            await wipe(folder)
            reached("worktrees are removed, and registered")
            await store.git("worktree", "prune", "--expire=now")


def _registered(store: Store) -> bool:
    """Whether git knows worktrees of this store."""
    folder = store.git_dir / "worktrees"
    return folder.is_dir() and any(folder.iterdir())


def _admin_of(tree: Path) -> Path:
    return Path(os.fsdecode((tree / ".git").read_bytes().removeprefix(b"gitdir: ").rstrip(b"\n")))


def _make_empty(slot: Slot) -> None:
    slot.tree.mkdir(parents=True)
    (slot.tree / ".git").write_bytes(slot.pointer)
    (slot.admin / "index").unlink(missing_ok=True)


def _rule(path: str) -> str:
    """A rule of git's that means this path and no other."""
    return "/" + re.sub(r"([\\\[\]*?!#\s])", r"\\\1", path)


def _drop_locks(slot: Slot) -> None:
    for name in ("index.lock", "HEAD.lock"):
        with suppress(FileNotFoundError):
            (slot.admin / name).unlink()
