"""A layer of difference: laid over a checkout of one commit, it shows another.

Holds the files that differ and a whiteout for each that is gone. Made from objects, at the price of the difference;
where attributes convert files on their way out, git writes them itself.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.ids import Sha
from worktrees.change import folders_above
from worktrees.git import CAP, Git, fields, text
from worktrees.upper import EXECUTABLE, LINK, NONE
from worktrees.wipe import make_folder

ATTRIBUTES = ".gitattributes"
GITLINK = "160000"
ROOM = 1024 * 1024  # what an answer holds besides the contents
MISSING = b" missing"


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


async def difference(git: Git, old: Sha, new: Sha) -> Difference:
    """The paths of two commits that differ."""
    parts = fields(await git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new))
    there, gone = list[tuple[str, str, Sha]](), list[str]()
    for raw, path in zip(parts[::2], parts[1::2], strict=True):
        _, mode, _, blob, _ = raw.split(" ")
        if mode == NONE:
            gone.append(path)
        else:
            there.append((path, mode, blob))
    return Difference(tuple(there), tuple(gone))


async def fill(git: Git, layer: Path, commit: Sha, near: Difference, *, converts: bool) -> None:
    """Make an empty folder the layer that leads to `commit`."""
    lost = await _lost(git, commit, near.gone)
    blobs = None if converts else await _contents(git, near)
    await to_thread.run_sync(_write, layer, near, blobs or {}, lost)
    if blobs is None:
        await _check_out(git, layer, commit, near)


async def _contents(git: Git, near: Difference) -> dict[Sha, bytes] | None:
    """The blobs of a difference; None where they are too much for one answer."""
    wanted = sorted({blob for _, mode, blob in near.there if mode != GITLINK})
    if not wanted:
        return {}
    asked = "".join(f"{blob}\n" for blob in wanted).encode()
    sizes = text(await git("cat-file", "--batch-check=%(objectsize)", data=asked)).split()
    if sum(map(int, sizes)) + ROOM > CAP // 4:
        return None
    raw = await git("cat-file", "--batch", "--buffer", data=asked)
    found: dict[Sha, bytes] = {}
    at = 0
    for blob in wanted:
        end = raw.index(b"\n", at)
        size = int(raw[at:end].split(b" ")[2])
        found[blob] = raw[end + 1 : end + 1 + size]
        at = end + size + 2
    return found


async def _lost(git: Git, commit: Sha, gone: Sequence[str]) -> tuple[str, ...]:
    """What to hide: the files that are gone, or the whole folder where nothing of it is left."""
    above = {folder for path in gone for folder in folders_above(path)}
    folders = sorted(folder for folder in above if "\n" not in folder)  # git asks and answers by lines
    asked = b"".join(os.fsencode(f"{commit}:{folder}") + b"\n" for folder in folders)
    states = (await git("cat-file", "--batch-check", data=asked)).splitlines() if folders else []
    empty = {folder for folder, state in zip(folders, states, strict=True) if state.endswith(MISSING)}
    return tuple(dict.fromkeys(next((up for up in folders_above(path) if up in empty), path) for path in gone))


def _write(layer: Path, near: Difference, blobs: dict[Sha, bytes], lost: Sequence[str]) -> None:
    for path, mode, blob in near.there:
        at = layer / path
        make_folder(at if mode == GITLINK else at.parent)
        if blob not in blobs:
            continue
        if mode == LINK:
            at.symlink_to(os.fsdecode(blobs[blob]))
        else:
            at.write_bytes(blobs[blob])
            if mode == EXECUTABLE:
                at.chmod(0o755)
    for path in _outermost(layer, lost):
        (layer / path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(layer / path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def _outermost(layer: Path, lost: Sequence[str]) -> Iterator[str]:
    """What is not hidden anyway, by a file where its folder was or a folder where it was."""
    for path in lost:
        above = [layer / up for up in folders_above(path)]
        hidden = any(up.is_symlink() or (up.exists() and not up.is_dir()) for up in above)
        if not hidden and not os.path.lexists(layer / path):
            yield path


async def _check_out(git: Git, layer: Path, commit: Sha, near: Difference) -> None:
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await git("read-tree", commit, env=env)
        paths = [os.fsencode(path) for path, mode, _ in near.there if mode != GITLINK]
        asked = b"".join(path + b"\0" for path in paths)
        await Git(git.git_dir, layer)("checkout-index", "-z", "--stdin", "--force", env=env, data=asked)
