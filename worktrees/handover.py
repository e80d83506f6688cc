"""How a worktree was when its tenant got it, so that what the tenant did can be told without a walk.

It shows in two places. Names that come and go break the seal of their folder. Files that change in place no longer fit
git's index, which serves here as a table of what the kernel said of each file; it may lag behind the commit, and then
what was written since has seals of its own.

The index knows times to the second only. Of files that were written in the very second that the index was, git compares
contents, which says nothing of their modes; as long as there are such, the hand-over counts as unsettled.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from anyio import to_thread

from fleet.core.ids import Sha
from worktrees.changes import rewrites
from worktrees.difference import ATTRIBUTES, GITLINK
from worktrees.git import fields
from worktrees.layer import SHA1
from worktrees.objects import TREE, Objects, Tree
from worktrees.seals import Seal, clock, seal
from worktrees.slot import Slot
from worktrees.store import Store
from worktrees.strays import Names, Strays

ABSENT: Seal = (0, 0)
CONVERTS = b"eol=crlf"


@dataclass(slots=True)
class HandOver:
    """What is known of one."""

    base: Sha
    mode: int
    """Of its folders."""
    folders: dict[str, Seal | None]
    written: dict[str, Seal | None] = field(default_factory=dict)
    """Where the index does not say how a file was."""
    settled: bool = False


async def hand_over(store: Store, slot: Slot, base: Sha) -> HandOver | None:
    """Take down how a worktree is that git just made clean; None where the quick way is not for it."""
    if len(base) != SHA1 or store.objects.by_git is not None:
        return None
    listed = fields(await store.git("ls-tree", "-r", "-z", base))
    if any(line.startswith(GITLINK) for line in listed):
        return None
    attributes = [line.split("\t", 1)[0].split(" ")[2] for line in listed if line.endswith(ATTRIBUTES)]
    contents = await store.objects.run(lambda: list(store.objects.blobs(attributes)))
    if any(rewrites(content) == "contents" or CONVERTS in content for content in contents):
        return None
    now = clock()
    folders = await to_thread.run_sync(_folders, slot.tree)
    status = slot.tree.lstat()
    seals = {path: seal(found, now) for path, found in folders.items()}
    return HandOver(base, stat.S_IMODE(status.st_mode), seals)


def _folders(root: Path) -> dict[str, os.stat_result]:
    found, pending = {"": root.lstat()}, [""]
    while pending:
        folder = pending.pop()
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    found[path] = entry.stat(follow_symlinks=False)
                    pending.append(path)
    return found


async def dirty_files(slot: Slot) -> tuple[str, ...]:
    """The files that the kernel says something else of than the index does; those that are gone, too."""
    return tuple(fields(await slot.git("diff-files", "--name-only", "-z", "--ignore-submodules=all")))


def rewritten_since(root: Path, handed: HandOver, strays: Strays) -> list[str]:
    """Of the files that the index says nothing true of, those that are not as they were handed over."""
    found = []
    for path, before in handed.written.items():
        status = None if path.rpartition("/")[0] in strays.missing else file_at(root, path)
        if status is None:
            same = before == ABSENT
        else:
            same = before is not None and (status.st_ino, status.st_ctime_ns) == before
        if not same:
            found.append(path)
    return found


def file_at(root: Path, path: str) -> os.stat_result | None:
    """What is at a path, unless that is a folder or nothing."""
    try:
        status = os.lstat(f"{root}/{path}")  # hundreds of them are looked at for each lease
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return None
    return None if stat.S_ISDIR(status.st_mode) else status


def names_in(objects: Objects, commit: Sha) -> Names:
    """What each folder of a commit holds."""
    top = objects.commit(commit).tree

    def names(folder: str) -> Tree:
        at = objects.tree(top)
        for part in folder.split("/") if folder else ():
            node = at.get(os.fsencode(part))
            if node is None or node[0] != TREE:
                return {}
            at = objects.tree(node[1].hex())
        return at

    return names
