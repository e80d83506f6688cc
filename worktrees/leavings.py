"""What a tenant left in a worktree to be committed, at the price of what it changed: see `handover.py`."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from worktrees.change import ignored
from worktrees.handover import ABSENT, HandOver, dirty_files, names_in, rewritten_since
from worktrees.objects import TREE
from worktrees.scan import Finding, is_git_name, scan_tree
from worktrees.slot import Slot
from worktrees.store import Store
from worktrees.strays import Names, Strays, find_strays
from worktrees.view import View


@dataclass(frozen=True, slots=True)
class Left:
    """What a tenant left that is to be committed, or must not be."""

    paths: tuple[bytes, ...]
    findings: tuple[Finding, ...]


async def left_by(store: Store, slot: Slot, handed: HandOver, *, max_files: int) -> Left:
    """What differs from the commit that was handed over, as `git add --all` would take it. Raises `Odd`."""
    names = names_in(store.objects, handed.base)
    strays = await store.objects.run(lambda: find_strays(slot.tree, handed.folders, names))
    again = await to_thread.run_sync(lambda: rewritten_since(slot.tree, handed, strays))
    again = [
        path for path in again if handed.written[path] != ABSENT
    ]  # what was not there is a stray, and maybe ignored
    dirty = [path for path in await dirty_files(slot) if path not in handed.written]
    dirty += await store.objects.run(lambda: _below(strays.missing, names))  # git can't follow a link to itself
    new, findings = await to_thread.run_sync(lambda: _new_files(slot.tree, strays, max_files))
    if findings:
        return Left((), findings)
    out = await ignored(store.git, View((slot.tree,)), new) if new else frozenset[str]()
    kept = dict.fromkeys((*again, *dirty, *(path for path in new if path not in out)))
    return Left(tuple(sorted(map(os.fsencode, kept))), ())  # attributes hold for what git adds after them


def _below(folders: Iterable[str], names: Names) -> list[str]:
    return [
        os.fsdecode(b"/".join((os.fsencode(folder), name)))
        for folder in folders
        for name, node in names(folder).items()
        if node[0] != TREE
    ]


def _new_files(root: Path, strays: Strays, max_files: int) -> tuple[list[str], tuple[Finding, ...]]:
    new: list[str] = []
    findings: list[Finding] = []
    for path in strays.paths:
        at = root / path
        mode = at.lstat().st_mode
        if is_git_name(at.name):
            findings.append(Finding(path, "only git may use this name"))
        elif stat.S_ISDIR(mode):
            found = scan_tree(root, max_files=max_files - len(new), start=path)
            findings += found
            if not found:
                new += _files_in(root, path)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            new.append(path)
        else:
            findings.append(Finding(path, "is neither a file, a folder nor a link"))
        if len(new) > max_files:
            return [], (Finding(".", f"there are more than {max_files} files"),)
    return new, tuple(findings)


def _files_in(root: Path, folder: str) -> list[str]:
    found, pending = list[str](), [folder]
    while pending:
        at = pending.pop()
        with os.scandir(f"{root}/{at}") as entries:
            for entry in entries:
                (pending if entry.is_dir(follow_symlinks=False) else found).append(f"{at}/{entry.name}")
    return found
