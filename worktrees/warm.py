"""From one tenant of a worktree to the next, at the price of the difference.

One look at each folder, one `git diff-files`, and the files that differ. Whatever does not fit this is `Odd`, and
somebody goes through the whole worktree.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from anyio import create_task_group

from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.change import folders_above
from worktrees.difference import ATTRIBUTES
from worktrees.handover import ABSENT, HandOver, dirty_files, file_at, names_in, rewritten_since
from worktrees.mount import discard
from worktrees.objects import TREE
from worktrees.rewrite import Put, rewrite
from worktrees.seals import WHOLE, clock, seal
from worktrees.slot import Slot
from worktrees.store import Store
from worktrees.strays import Odd, find_strays
from worktrees.wipe import wipe

LAG = 1_000  # files that the index may be behind by before it is brought up to date
MOST = 2_000  # files that are written one by one; beyond that git is faster
PLAIN = 0o666  # the most that a file allows that is no program
SMALL = 500  # files of a stray folder that is removed on the spot


async def move(store: Store, slot: Slot, handed: HandOver, base: Sha, *, tidied: bool = False) -> HandOver:
    """Make a worktree exactly `base` again, and say how it is handed over. Raises `Odd`, `Broken` and `OSError`.

    After `Odd` it is anything: git has to check it out. `tidied`: nobody had it since it was handed over.
    """
    turn = _Turn(store, slot.tree, handed, base)
    new = handed
    if not tidied:
        new = await _without_traces(turn, slot)
    elif base != handed.base:
        new = await store.objects.run(turn.advance)
    (slot.admin / "HEAD").write_text(f"{base}\n", encoding="ascii")
    await _settle(slot, new)
    return new


async def _without_traces(turn: "_Turn", slot: Slot) -> HandOver:
    """Of whatever a tenant did."""
    dirty: list[tuple[str, ...] | Broken] = []

    async def ask() -> None:
        try:
            dirty.append(await dirty_files(slot))
        except Broken as broken:  # raised in here it would come out as a group
            dirty.append(broken)

    outcome: Exception | None = None
    async with create_task_group() as beside:
        beside.start_soon(ask)
        try:
            await turn.store.objects.run(turn.begin)
        except (Odd, Broken, OSError) as error:
            outcome = error
    if outcome is not None:
        raise outcome
    [listed] = dirty
    if turn.again:
        listed = await dirty_files(slot)
    if isinstance(listed, Broken):
        raise listed
    for path in turn.large:
        await wipe(slot.tree / path)
    return await turn.store.objects.run(partial(turn.end, listed))


@dataclass(slots=True)
class _Turn:
    """From one tenant to the next, in two steps between which git's answer is waited for. Blocks."""

    store: Store
    root: Path
    handed: HandOver
    base: Sha
    again: bool = False
    """Whether git has to be asked once more: it could not look everywhere, or was told how to look."""
    large: list[str] = field(default_factory=list)
    """Stray folders that somebody must wipe."""
    _moved: dict[str, None] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)
    _changed: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Remove what strayed in, and write what differs between the commits."""
        strays = find_strays(self.root, self.handed.folders, names_in(self.store.objects, self.handed.base))
        told = any(path.endswith(ATTRIBUTES) for path in strays.paths)  # how to read files that git has doubts about
        self.again = strays.opened or bool(strays.missing) or told
        self._touched = {*strays.broken, *strays.missing}
        self._changed = rewritten_since(self.root, self.handed, strays)
        for path in strays.paths:
            self._drop(path)
        for folder in strays.broken - strays.missing:
            self._mend(folder)
        if not self.handed.settled:
            self._mend_files()
        if not self.large:
            self._advance()

    def advance(self) -> HandOver:
        """Write what differs between the commits, where that is all that differs."""
        self._advance()
        return self._sealed(self._moved)

    def _advance(self) -> None:
        there, gone = self._difference()
        self._write(there, gone)
        self._moved = dict.fromkeys((*gone, *(path for path, _, _ in there)))

    def end(self, dirty: Iterable[str]) -> HandOver:
        """Write what the tenant changed as it was, and seal everything."""
        if self.large:
            self._advance()
        changed = dict.fromkeys((*self._changed, *(path for path in dirty if path not in self.handed.written)))
        again = [path for path in changed if path not in self._moved]
        names = names_in(self.store.objects, self.base)
        nodes = {path: names(path.rpartition("/")[0]).get(os.fsencode(path.rpartition("/")[2])) for path in again}
        if any(path.endswith(ATTRIBUTES) for path in again):
            raise Odd("attributes were changed")
        there = [(path, node[0].decode(), node[1].hex()) for path, node in nodes.items() if node and node[0] != TREE]
        self._write(there, [path for path, node in nodes.items() if node is None])
        return self._sealed((*self._moved, *again))

    def _difference(self) -> tuple[Sequence[Put], Sequence[str]]:
        found = self.store.differences.between(self.handed.base, self.base)
        if found.converts:
            raise Odd("attributes changed")
        if found.gitlinks:
            raise Odd("a submodule came")
        return found.there, found.gone

    def _write(self, there: Sequence[Put], gone: Sequence[str]) -> None:
        if len(there) + len(gone) > MOST:
            raise Odd(f"more than {MOST} files differ")
        rewrite(self.store.objects, self.root, there=there, gone=gone)
        for path in (*gone, *(path for path, _, _ in there)):
            self._touched.update(("", *folders_above(path)))

    def _drop(self, path: str) -> None:
        at = self.root / path
        if at.is_symlink() or not at.is_dir():
            at.unlink()
        elif not discard(at, most=SMALL):
            self.large.append(path)

    def _mend(self, folder: str) -> None:
        """A tenant may have changed what a folder lets others do, or what is said of it."""
        at = f"{self.root}/{folder}"  # plain names: this is the price of a lease
        if stat.S_IMODE(os.lstat(at).st_mode) != self.handed.mode:
            os.chmod(at, self.handed.mode)  # noqa: PTH101
        with suppress(OSError):  # a file system without any
            for name in os.listxattr(at, follow_symlinks=False):
                if name.startswith(("user.", "system.posix_acl")):
                    os.removexattr(at, name, follow_symlinks=False)

    def _mend_files(self) -> None:
        """Modes of files that were written in the same second as the index: git sees only one bit of them."""
        pending = [os.fspath(self.root)]
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    mode = entry.stat(follow_symlinks=False).st_mode
                    wanted = self.handed.mode if mode & stat.S_IXUSR else self.handed.mode & PLAIN
                    if stat.S_ISDIR(mode):
                        pending.append(entry.path)
                    elif stat.S_ISREG(mode) and stat.S_IMODE(mode) != wanted:
                        os.chmod(entry.path, wanted)  # noqa: PTH101

    def _sealed(self, paths: Iterable[str]) -> HandOver:
        now = clock()
        folders = dict(self.handed.folders)
        for folder in self._touched:
            folders.pop(folder, None)
            with suppress(FileNotFoundError, NotADirectoryError):
                folders[folder] = seal(os.lstat(f"{self.root}/{folder}"), now)
        written = dict(self.handed.written)
        for path in paths:
            status = file_at(self.root, path)
            written[path] = seal(status, now) if status else ABSENT
        return HandOver(self.base, self.handed.mode, folders, written, self.handed.settled)


async def _settle(slot: Slot, new: HandOver) -> None:
    """Bring the index up to date, when it lags far behind or holds files of the second that it was written in."""
    this_second = clock() // WHOLE
    unsettled = not new.settled and (slot.admin / "index").stat().st_mtime_ns // WHOLE < this_second
    if not unsettled and len(new.written) <= LAG:
        return
    ready = [path for path, at in new.written.items() if at is not None and at[1] // WHOLE < this_second]
    options = ("--add", "--remove", "--replace", "--force-write-index", "-z", "--stdin")
    await slot.git("update-index", *options, data=b"".join(os.fsencode(path) + b"\0" for path in ready))
    for path in ready:
        del new.written[path]
    new.settled = new.settled or unsettled
