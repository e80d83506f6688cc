"""A layer of difference: laid over a checkout of one commit, it shows another.

Holds the files that differ and a whiteout for each that is gone. Made from objects in process, at the price of the
difference; where attributes convert files on their way out, or ids are not SHA-1, git writes them itself.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.change import folders_above
from worktrees.fold import differing
from worktrees.git import Git, fields
from worktrees.objects import TREE, Objects
from worktrees.store import Store
from worktrees.upper import EXECUTABLE, LINK, NONE
from worktrees.wipe import make_folder

ATTRIBUTES = ".gitattributes"
GITLINK = "160000"
SHA1 = 40  # letters of an id


@dataclass(frozen=True, slots=True)
class Difference:
    """From one commit to another, by path: mode and blob of what is there, and what is not there any more."""

    there: tuple[tuple[str, str, Sha], ...]
    gone: tuple[str, ...]

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*self.gone, *(path for path, _, _ in self.there)))

    @property
    def converts(self) -> bool:
        """Whether files may look different now although they are the same to git."""
        return any(path.endswith(ATTRIBUTES) for path in self.paths)

    @property
    def gitlinks(self) -> frozenset[str]:
        return frozenset(path for path, mode, _ in self.there if mode == GITLINK)


async def difference(store: Store, old: Sha, new: Sha) -> Difference:
    """The paths of two commits that differ."""
    if len(old) == SHA1:
        return await store.objects.run(partial(_difference, store.objects, old, new))
    parts = fields(await store.git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new))
    there, gone = list[tuple[str, str, Sha]](), list[str]()
    for raw, path in zip(parts[::2], parts[1::2], strict=True):
        _, mode, _, blob, _ = raw.split(" ")
        if mode == NONE:
            gone.append(path)
        else:
            there.append((path, mode, blob))
    return Difference(tuple(there), tuple(gone))


def _difference(objects: Objects, old: Sha, new: Sha) -> Difference:
    found = differing(objects, objects.commit(old).tree, objects.commit(new).tree)
    there = [(os.fsdecode(each.path), each.new[0].decode(), each.new[1].hex()) for each in found if each.new]
    return Difference(tuple(there), tuple(os.fsdecode(each.path) for each in found if each.new is None))


async def fill(store: Store, layer: Path, commit: Sha, near: Difference, *, converts: bool) -> None:
    """Make an empty folder the layer that leads to `commit`."""
    files = [each for each in near.there if each[1] != GITLINK]
    written = False
    if not converts and len(commit) == SHA1:
        try:
            await store.objects.run(partial(_write, store.objects, layer, files))
            written = True
        except Broken:  # one that is too large to be read in process
            pass
    if not written:
        await _check_out(store.git, layer, commit, files)
    await to_thread.run_sync(_finish, layer, near, await _lost(store, commit, near.gone))


def _write(objects: Objects, layer: Path, files: Sequence[tuple[str, str, Sha]]) -> None:
    made: set[str] = set()
    contents = objects.blobs([blob for _, _, blob in files])
    for (path, mode, _), content in zip(files, contents, strict=True):
        at = f"{layer}/{path}"
        folder = path.rpartition("/")[0]
        if folder not in made:
            os.makedirs(f"{layer}/{folder}", exist_ok=True)  # noqa: PTH103 - plain names: this is the price of a lease
            made.add(folder)
        if mode == LINK:
            os.symlink(content, os.fsencode(at))  # noqa: PTH211
            continue
        fd = os.open(at, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o777 if mode == EXECUTABLE else 0o666)
        with os.fdopen(fd, "wb") as file:
            file.write(content)


async def _check_out(git: Git, layer: Path, commit: Sha, files: Sequence[tuple[str, str, Sha]]) -> None:
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await git("read-tree", commit, env=env)
        asked = b"".join(os.fsencode(path) + b"\0" for path, _, _ in files)
        await Git(git.git_dir, layer)("checkout-index", "-z", "--stdin", "--force", env=env, data=asked)


async def _lost(store: Store, commit: Sha, gone: Sequence[str]) -> tuple[str, ...]:
    """What to hide: the files that are gone, or the whole folder where nothing of it is left."""
    if not gone or len(commit) != SHA1:
        return tuple(gone)
    return await store.objects.run(partial(_outlived, store.objects, commit, gone))


def _outlived(objects: Objects, commit: Sha, gone: Sequence[str]) -> tuple[str, ...]:
    top, there = objects.commit(commit).tree, dict[str, Sha | None]()
    there[""] = top

    def is_there(folder: str) -> bool:
        if folder not in there:
            above, _, name = folder.rpartition("/")
            tree = there[above] if is_there(above) else None
            node = objects.tree(tree).get(os.fsencode(name)) if tree is not None else None
            there[folder] = node[1].hex() if node is not None and node[0] == TREE else None
        return there[folder] is not None

    return tuple(dict.fromkeys(next((up for up in folders_above(path) if not is_there(up)), path) for path in gone))


def _finish(layer: Path, near: Difference, lost: Sequence[str]) -> None:
    for path in near.gitlinks:
        make_folder(layer / path)
    for path in _outermost(layer, lost):
        make_folder((layer / path).parent)
        os.mknod(layer / path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def _outermost(layer: Path, lost: Sequence[str]) -> Iterator[str]:
    """What is not hidden anyway, by a file where its folder was or a folder where it was."""
    for path in lost:
        above = [layer / up for up in folders_above(path)]
        hidden = any(up.is_symlink() or (up.exists() and not up.is_dir()) for up in above)
        if not hidden and not os.path.lexists(layer / path):
            yield path
