"""A few worktrees, registered with git once per run and leased again and again.

Registering is serialised (it races inside git); moving a slot to another base costs the difference and runs beside
everything else. A slot is exclusively its tenant's, so a lock file left in it belongs to a git of ours that was killed.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, move_on_after, to_thread

from fleet.core.facts import Failure
from fleet.core.ids import RunId, Sha
from fleet.ports import Broken
from worktrees.box import Place
from worktrees.git import Git, fields
from worktrees.layer import difference
from worktrees.scan import scan_tree
from worktrees.store import Store
from worktrees.wipe import make_folder, wipe


@dataclass(frozen=True, slots=True)
class Slot:
    """One registered worktree."""

    tree: Path
    admin: Path
    """Git's own folder for it, in the store: index and HEAD."""

    @property
    def git(self) -> Git:
        return Git(self.admin, self.tree)

    @property
    def place(self) -> Place:
        name = f"{self.tree.parent.name}/{self.tree.name}"
        return Place(tree=self.tree, scratch=self.tree.with_name(f"{self.tree.name}.scratch"), mark=name)


def slots_dir(store: Store, run_id: RunId) -> Path:
    return store.home / "slots" / run_id


@dataclass(slots=True)
class Pool:
    """The slots of one run. Grows with the number of leases held at once."""

    store: Store
    run: RunId
    max_files: int
    cleanup_s: float
    _free: list[Slot] = field(default_factory=list)
    _made: int = 0
    _at: dict[Slot, Sha] = field(default_factory=dict)
    _gitlinks: dict[Sha, tuple[str, ...]] = field(default_factory=dict)

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[Slot]:
        """A slot that holds exactly `base`. Raises `Broken`; a slot that can't be made ready is not used again."""
        slot = self._free.pop() if self._free else await self._add(base)
        try:
            await self._prepare(slot, base)
        except OSError as error:
            raise Broken(Failure(kind="infrastructure", summary=f"a worktree can't be made ready: {error}")) from error
        try:
            yield slot
        finally:
            self._free.append(slot)  # cleaned when it is leased again: giving back never waits

    async def _add(self, base: Sha) -> Slot:
        self._made += 1
        tree = slots_dir(self.store, self.run) / str(self._made)
        async with self.store.administration():
            with CancelScope(shield=True):  # half a registration would be in everybody's way
                await to_thread.run_sync(make_folder, tree.parent)
                await self.store.git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(tree), base)
        return Slot(tree, await to_thread.run_sync(_admin_of, tree))

    async def _prepare(self, slot: Slot, base: Sha) -> None:
        last = self._at.pop(slot, base)
        converts = last != base and (await difference(self.store.git, last, base)).converts
        if converts or not await to_thread.run_sync(self._is_safe, slot):
            await self._rebuild(slot)
        await to_thread.run_sync(_drop_locks, slot)
        await wipe(slot.place.scratch)
        await slot.git("checkout", "--quiet", "--force", "--detach", base, "--")
        await slot.git("clean", "--quiet", "-ffdx")
        await self._empty_gitlinks(slot, base)
        self._at[slot] = base

    def _is_safe(self, slot: Slot) -> bool:
        """Whether git may walk what the last tenant left."""
        pointer = slot.tree / ".git"
        if pointer.is_symlink() or not pointer.is_file() or pointer.read_bytes() != _pointer_to(slot.admin):
            return False
        return not scan_tree(slot.tree, max_files=self.max_files)

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

    async def close(self) -> None:
        """Remove every slot, also when cancelled, in bounded time."""
        with CancelScope(shield=True), move_on_after(self.cleanup_s):
            await remove_slots(self.store, self.run)


async def remove_slots(store: Store, run_id: RunId) -> None:
    """Remove what is there of a run's slots, whoever left it."""
    folder = slots_dir(store, run_id)
    if folder.exists():
        async with store.administration():
            await wipe(folder)
            await store.git("worktree", "prune", "--expire=now")


def _admin_of(tree: Path) -> Path:
    return Path(os.fsdecode((tree / ".git").read_bytes().removeprefix(b"gitdir: ").rstrip(b"\n")))


def _pointer_to(admin: Path) -> bytes:
    return b"gitdir: " + os.fsencode(admin) + b"\n"


def _make_empty(slot: Slot) -> None:
    slot.tree.mkdir(parents=True)
    (slot.tree / ".git").write_bytes(_pointer_to(slot.admin))
    (slot.admin / "index").unlink(missing_ok=True)


def _drop_locks(slot: Slot) -> None:
    for name in ("index.lock", "HEAD.lock"):
        with suppress(FileNotFoundError):
            (slot.admin / name).unlink()
