"""A layer of difference: laid over a checkout of one commit, it shows another.

Holds the files that differ and a whiteout for each that is gone. Made from objects in process, at the price of the
difference; where attributes convert files on their way out, or ids are not SHA-1, git writes them itself.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.change import folders_above
from worktrees.difference import Difference
from worktrees.files import create
from worktrees.git import Git
from worktrees.objects import TREE, Objects
from worktrees.store import Store
from worktrees.upper import EXECUTABLE, LINK
from worktrees.wipe import make_folder

SHA1 = 40  # letters of an id


async def bridge(store: Store, layer: Path, old: Sha, new: Sha, *, most: int, converts: bool) -> Difference | None:
    """Make a folder that is the layer which leads from one commit to another; none where they are the same.

    None where they differ in more paths than that, or in how files are converted. `converts`: whether some are.
    """
    near, made = await store.objects.run(partial(_bridge, store, layer, old, new, most=most, converts=converts))
    if near is not None and not made:
        await to_thread.run_sync(make_folder, layer)
        await _check_out(store.git, layer, new, near.files)
        lost = near.gone
        if len(new) == SHA1:
            lost = await store.objects.run(partial(_outlived, store.objects, new, near.gone))
        await to_thread.run_sync(_finish, layer, near, lost)
    return near


def _bridge(
    store: Store, layer: Path, old: Sha, new: Sha, *, most: int, converts: bool
) -> tuple[Difference | None, bool]:
    """How to get there if that is worth a layer, and whether it is made."""
    near = store.differences.between(old, new)
    if len(near.paths) > most or near.converts:
        return None, False
    if not near.paths:
        return near, True
    if converts or len(new) != SHA1:
        return near, False
    try:
        make_folder(layer)
        _write(store.objects, layer, near.files)
        _finish(layer, near, _outlived(store.objects, new, near.gone))
    except Broken:  # one of its files is too large to be read in process
        return near, False
    return near, True


def _write(objects: Objects, layer: Path, files: Sequence[tuple[str, str, Sha]]) -> None:
    within = os.open(layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def make_folders() -> None:
        for folder in dict.fromkeys(folder for path, _, _ in files for folder in folders_above(path)):
            os.mkdir(folder, dir_fd=within)

    contents = objects.blobs([blob for _, _, blob in files], make_folders)
    try:
        for (path, mode, _), content in zip(files, contents, strict=True):
            if mode == LINK:
                os.symlink(content, os.fsencode(path), dir_fd=within)
            else:
                create(path, content, mode=0o777 if mode == EXECUTABLE else 0o666, within=within)
    finally:
        os.close(within)


async def _check_out(git: Git, layer: Path, commit: Sha, files: Sequence[tuple[str, str, Sha]]) -> None:
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await git("read-tree", commit, env=env)
        asked = b"".join(os.fsencode(path) + b"\0" for path, _, _ in files)
        await Git(git.git_dir, layer)("checkout-index", "-z", "--stdin", "--force", env=env, data=asked)


def _outlived(objects: Objects, commit: Sha, gone: Sequence[str]) -> tuple[str, ...]:
    """What to hide: the files that are gone, or the whole folder where nothing of it is left."""
    if not gone:
        return ()
    there: dict[str, Sha | None] = {"": objects.commit(commit).tree}

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
