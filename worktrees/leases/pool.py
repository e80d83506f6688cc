"""A few worktrees, registered with git once per run and leased repeatedly.

Registering is serialized (it races inside git). Preparing a slot takes as long as `git worktree add` and runs in
parallel. A slot belongs to one tenant at a time, so a lock file in it was left by a git process of ours that was
killed.
"""

import os
import re
import stat
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, to_thread

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.fs import make_folder, size_of, wipe
from worktrees.base.process import os_errors
from worktrees.base.settings import WorktreeSettings
from worktrees.git.object_format import ATTRIBUTES, GITLINK
from worktrees.git.program import Git, fields
from worktrees.leases.setup import Setup, state_of
from worktrees.leases.union_view import TreeView, scan_tree
from worktrees.sandbox.box import Place, port_environment
from worktrees.store.store import Store, slots_dir


@dataclass(frozen=True, slots=True)
class SetupFiles:
    """Files that the setup command created in a slot: the fingerprint, the paths, and their state afterwards."""

    fingerprint: str
    roots: tuple[str, ...]
    state: str
    count: int


@dataclass(slots=True, eq=False)
class Slot:
    """A registered worktree: its folder, git's folder for it, and the state of its files."""

    tree: Path
    admin: Path
    """Git's folder for it in the store, with index and HEAD."""
    folder_mode: int
    """With the permissions that git gives folders."""
    environment: Mapping[str, str] = field(default_factory=dict)
    base: Sha | None = None
    """The commit of the last checkout, or None if the slot is new or the checkout failed."""
    gitlinks: frozenset[str] = frozenset()
    """The submodules of that commit."""
    setup_files: SetupFiles | None = None
    size: int | None = None
    """In bytes, measured while it is idle and the pool has a limit."""

    @property
    def git(self) -> Git:
        return Git(self.admin, self.tree)

    @property
    def place(self) -> Place:
        name, scratch = f"{self.tree.parent.name}/{self.tree.name}", self.tree.with_name(f"{self.tree.name}.scratch")
        return Place(self.tree, scratch, name, environment=self.environment)

    @property
    def file_count(self) -> int:
        """The number of files that git wrote, from the header of the index."""
        with suppress(OSError), (self.admin / "index").open("rb") as index:
            return int.from_bytes(index.read(12)[8:])
        return 0

    @property
    def pointer(self) -> bytes:
        """The content of the worktree's `.git` file."""
        return b"gitdir: " + os.fsencode(self.admin) + b"\n"

    def has_pointer(self) -> bool:
        """Whether the worktree's `.git` is still the file that we left there."""
        path = self.tree / ".git"
        return not path.is_symlink() and path.is_file() and path.read_bytes() == self.pointer


@dataclass(slots=True)
class Pool:
    """The slots of one run: as many as were ever leased at the same time."""

    store: Store
    name: str
    """The name of its folder of worktrees: the run id for the worktrees of a run."""
    settings: WorktreeSettings
    setup: Setup
    _free: list[Slot] = field(default_factory=list)
    _made: int = 0

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[Slot]:
        """Lease a slot with exactly `base`, preferably the last released one. Raises `EffectError`.

        A slot that can't be prepared is not used again.
        """
        slot = self._free.pop() if self._free else await self._add(base)
        slot.size = None
        await self._evict()
        with os_errors("can't prepare a worktree"):
            await self._prepare(slot, base)
        try:
            reached("a worktree is leased")
            yield slot
        finally:
            self._free.append(slot)

    def max_files(self, slot: Slot) -> int:
        """The limit on files and folders in a slot: git's, those of the setup command, and the tenant's."""
        return (
            self.settings.box.max_files + 2 * slot.file_count + 1 + (slot.setup_files.count if slot.setup_files else 0)
        )

    async def _add(self, base: Sha) -> Slot:
        self._made += 1
        number = self._made
        tree = slots_dir(self.store, self.name) / str(number)
        async with self.store.administration():
            with CancelScope(shield=True):  # a partial registration would block every later one
                await to_thread.run_sync(make_folder, tree.parent)
                await self.store.git("worktree", "add", "--quiet", "--no-checkout", "--detach", str(tree), base)
                reached("a worktree is registered, and empty")
        admin, mode = await to_thread.run_sync(_admin_of, tree), tree.stat().st_mode & 0o7777
        return Slot(tree, admin, mode, port_environment(self.settings, number))

    async def _prepare(self, slot: Slot, base: Sha) -> None:
        """Bring a slot to exactly the base and the setup files, whatever its last tenant did."""
        before, slot.base = slot.base, None
        _remove_locks(slot)
        await wipe(slot.place.scratch)
        diff = await self.store.repository.diff(before, base) if before is not None else None
        if diff is None or diff.changes_attributes or not await to_thread.run_sync(self._clean, slot):
            await wipe(slot.tree)
            await to_thread.run_sync(_make_empty, slot)
        await slot.git("checkout", "--quiet", "--force", "--detach", base, "--")
        if not await self._has_setup_files(slot, base):
            slot.setup_files = None
        roots = slot.setup_files.roots if slot.setup_files else ()
        rules = (part for root in roots for part in ("-e", _exclude_rule(root)))
        await slot.git("clean", "--quiet", "-ffdx", *rules)
        if slot.setup_files is None and self.setup.is_needed:
            await self._set_up(slot, base)
        if diff is None:
            slot.gitlinks = await self._gitlinks(base)
        else:
            slot.gitlinks = slot.gitlinks.difference(diff.paths) | diff.gitlinks
        await _empty_folders(slot.tree, slot.gitlinks)
        slot.base = base

    def _clean(self, slot: Slot) -> bool:
        """Remove entries that git would miss or fail on. Return False if git must not walk the slot. Blocks."""
        if not slot.has_pointer() or scan_tree(slot.tree, max_files=self.max_files(slot)):
            return False
        roots = slot.setup_files.roots if slot.setup_files else ()
        remove_irregular_files(slot.tree, slot.admin / "index", slot.folder_mode, keep=roots)
        if not slot.has_pointer():
            (slot.tree / ".git").write_bytes(slot.pointer)
        return True

    async def _has_setup_files(self, slot: Slot, base: Sha) -> bool:
        """Whether a slot has the setup files for this base, unmodified."""
        files = slot.setup_files
        if files is None or files.fingerprint != await self.setup.fingerprint(base):
            return False
        state, _ = await to_thread.run_sync(state_of, slot.tree, files.roots)
        return state == files.state

    async def _set_up(self, slot: Slot, base: Sha) -> None:
        origin = await self.setup.origin(base)
        if origin != base:
            await slot.git("checkout", "--quiet", "--force", "--detach", origin, "--")
        await to_thread.run_sync(self.setup.included.copy_into, TreeView((slot.tree,)), slot.tree)
        try:
            await self.setup.run(slot.place, origin)
        except EffectError:
            self._free.append(slot)  # the slot itself is fine
            raise
        if await to_thread.run_sync(lambda: scan_tree(slot.tree, max_files=self.max_files(slot))):
            reason = "the setup command leaves files that are not safe for git"
            raise EffectError(Failure(kind="configuration", summary=reason))
        await slot.git("checkout", "--quiet", "--force", "--detach", base, "--")
        await slot.git("clean", "--quiet", "-ffd")
        listed = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        roots = tuple(path.rstrip("/") for path in fields(await slot.git(*listed)))
        state, count = await to_thread.run_sync(state_of, slot.tree, roots)
        slot.setup_files = SetupFiles(await self.setup.fingerprint(base), roots, state, count)

    async def _gitlinks(self, base: Sha) -> frozenset[str]:
        entries = fields(await self.store.git("ls-tree", "-r", "-z", base))
        return frozenset(entry.split("\t", 1)[1] for entry in entries if entry.startswith(GITLINK))

    async def _evict(self) -> None:
        """Remove idle worktrees, the longest idle first, until the disk limit is met."""
        if not (limit := self.settings.worktrees.max_gb * 1e9):
            return
        for slot in self._free:
            if slot.size is None:
                slot.size = await size_of(slot.tree)
        while self._free and sum(slot.size or 0 for slot in self._free) > limit:
            slot = self._free.pop(0)
            async with self.store.administration():
                await wipe(slot.tree)
                await wipe(slot.place.scratch)
                await self.store.git("worktree", "prune", "--expire=now")


async def remove_slots(store: Store, name: str) -> None:
    """Remove all worktrees under a name, from any process, and their registrations in git."""
    folder = slots_dir(store, name)
    if folder.exists() or await to_thread.run_sync(_has_worktrees, store):
        async with store.administration():
            await wipe(folder)
            reached("worktrees are removed, and registered")
            await store.git("worktree", "prune", "--expire=now")


def _has_worktrees(store: Store) -> bool:
    """Whether any worktree of this store is registered."""
    folder = store.git_dir / "worktrees"
    return folder.is_dir() and any(folder.iterdir())


def _admin_of(tree: Path) -> Path:
    return Path(os.fsdecode((tree / ".git").read_bytes().removeprefix(b"gitdir: ").rstrip(b"\n")))


def _make_empty(slot: Slot) -> None:
    slot.tree.mkdir(parents=True)
    (slot.tree / ".git").write_bytes(slot.pointer)
    (slot.admin / "index").unlink(missing_ok=True)


async def _empty_folders(tree: Path, paths: Collection[str]) -> None:
    """Empty the folders of submodules, which `git clean` leaves alone."""
    for path in paths:
        await wipe(tree / path)
        await to_thread.run_sync(make_folder, tree / path)


def _exclude_rule(path: str) -> str:
    """Return a git exclude pattern that matches only this path."""
    return "/" + re.sub(r"([\\\[\]*?!#\s])", r"\\\1", path)


def _remove_locks(slot: Slot) -> None:
    for name in ("index.lock", "HEAD.lock"):
        with suppress(FileNotFoundError):
            (slot.admin / name).unlink()


# ---- clean -----------------------------------------------------------------------------------------------------------
# Removes from a used worktree the entries that `git checkout --force` would not notice.
#
# Git writes a file again if its times or sizes differ from the index. The index counts times in whole seconds, so git
# compares only the content of a file as recent as the index, using the attribute files in the worktree. It would not
# notice a changed mode, an extended attribute or a second hard link. Git also finds files behind a link to a folder
# that was moved. Such files and all links are removed here, and git writes them again.


SECOND = 1_000_000_000
GIVEN_BY_TENANTS = ("user.", "system.posix_acl")
"""Prefixes of the extended attributes that a file's owner may set."""


def remove_irregular_files(root: Path, index: Path, folder_mode: int, *, keep: Collection[str]) -> None:
    """Remove links, and recent files that are not as git writes them. Reset the mode of folders.

    Paths in `keep` are not touched. Called after the scan, when no process of a tenant runs. Links are not followed.
    """
    kept_paths = {f"{root}/{path}" for path in keep}
    young = index.stat().st_mtime_ns // SECOND * SECOND if index.exists() else 0
    file_modes = {folder_mode & 0o666, folder_mode & 0o777}
    pending = [os.fspath(root)]
    while pending:
        folder = pending.pop()
        _restore_folder(folder, folder_mode)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.path in kept_paths:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode) or (
                    status.st_ctime_ns >= young and not _is_as_written(entry, status, file_modes)
                ):
                    os.unlink(entry.path)  # noqa: PTH108 - plain names: runs for every file of a worktree


def _is_as_written(entry: os.DirEntry[str], status: os.stat_result, modes: Collection[int]) -> bool:
    return (
        stat.S_ISREG(status.st_mode)
        and stat.S_IMODE(status.st_mode) in modes
        and status.st_nlink == 1
        and entry.name != ATTRIBUTES
        and not _attributes_of(entry.path)
    )


def _restore_folder(folder: str, mode: int) -> None:
    if stat.S_IMODE(os.lstat(folder).st_mode) != mode:
        os.chmod(folder, mode)  # noqa: PTH101 - as above
    for name in _attributes_of(folder):
        os.removexattr(folder, name, follow_symlinks=False)


def _attributes_of(path: str) -> list[str]:
    with suppress(OSError):  # a file system without extended attributes
        return [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith(GIVEN_BY_TENANTS)]
    return []
