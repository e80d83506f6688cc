"""The git repository that a worker sees: reading works as in any other, and writing to it changes nothing outside.

A few small files of the lease's own, with the store's objects read-only behind them; one branch, at the lease's base.
The index is as large as the repository, so it is made inside the box when git is first used there, from an index
of the manager that the box shows. What a worker leaves in a decoy is never read, and is removed with the lease.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fleet.core.base.ids import Sha
from worktrees.base.fs import create_file

ROOT = "/repo"
BRANCH = "refs/heads/work"
PLACE = "/fleet/git"
OBJECTS = "/fleet/objects"
INDEX = "/fleet/index"
EXCLUDED = "/fleet/exclude"
PROGRAMS = "/fleet/bin"
POINTER = f"gitdir: {PLACE}\n".encode()
BEHIND = "fleet-behind"
"""This file exists while the index that the box shows is of another commit, near the base."""

FOLDERS = ("objects", "objects/info", "refs", "refs/heads")
SHA1 = 40  # digits of an id
MAX_ALTERNATES = 20

# Git compares times and sizes only: in the box, owners and inode numbers differ from those where the index was made.
CONFIG = f"""\
[core]
\trepositoryFormatVersion = {{version}}
\tbare = false
\tfileMode = true
\tcheckStat = minimal
\ttrustCtime = false
\texcludesFile = {EXCLUDED}
[user]
\tname = worker
\temail = worker@localhost
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""
SHA256 = "[extensions]\n\tobjectFormat = sha256\n"

PROGRAM = f"""\
#!/bin/sh
before=$IFS IFS=:
for folder in $PATH; do
    if [ "$folder" != {PROGRAMS} ] && [ -x "$folder/git" ]; then real=$folder/git; break; fi
done
IFS=$before
if [ ! -e {PLACE}/index ] && [ -n "$real" ]; then (
    new={PLACE}/index.$$
    export GIT_DIR={PLACE} GIT_WORK_TREE={ROOT} GIT_INDEX_FILE="$new"
    cp {INDEX} "$new" 2>/dev/null || : >{PLACE}/{BEHIND}
    [ ! -e {PLACE}/{BEHIND} ] || "$real" read-tree -m -i {BRANCH}
    ln "$new" {PLACE}/index
    rm -f "$new"
) >/dev/null 2>&1; fi
exec "${{real:-/usr/bin/git}}" "$@"
""".encode()


@dataclass(frozen=True, slots=True)
class Decoy:
    """The decoy of one lease."""

    folder: Path
    objects: tuple[Path, ...]
    index: Path
    excluded: bytes

    def binds(self, program: int, excluded: int) -> Iterator[str]:
        """The arguments of bubblewrap that show it. The descriptors hold `PROGRAM` and what git ignores."""
        yield from ("--bind", str(self.folder), PLACE)
        yield from ("--perms", "0755", "--file", str(program), f"{PROGRAMS}/git")
        yield from ("--file", str(excluded), EXCLUDED)
        yield from ("--ro-bind-try", str(self.index), INDEX)
        for number, folder in enumerate(self.objects):
            yield from ("--ro-bind", str(folder), f"{OBJECTS}/{number}")
            if (folder / "info/alternates").is_file():
                yield from ("--dev-bind", os.devnull, f"{OBJECTS}/{number}/info/alternates")  # the decoy lists them all


@dataclass(frozen=True, slots=True)
class Decoys:
    """What all decoys of one store share."""

    objects: tuple[Path, ...]
    shallow: bytes
    excluded: bytes

    @classmethod
    def of(cls, git_dir: Path) -> Self:
        objects = tuple(_with_alternates(git_dir / "objects"))
        return cls(objects, _content(git_dir / "shallow"), _content(git_dir / "info/exclude"))

    def with_objects(self, objects: tuple[Path, ...]) -> "Decoys":
        """The same with other objects behind them."""
        return replace(self, objects=objects)

    def make(self, folder: Path, base: Sha, *, index: Path, exact: bool) -> Decoy:
        """Make a decoy in `folder`. `index` is the manager's: of `base` if it is `exact`, else of a commit near it."""
        os.makedirs(folder)  # noqa: PTH103 - plain names: each lease does this
        for name in FOLDERS:
            os.mkdir(f"{folder}/{name}")  # noqa: PTH102
        config = CONFIG.format(version=0) if len(base) == SHA1 else CONFIG.format(version=1) + SHA256
        alternates = "".join(f"{OBJECTS}/{number}\n" for number in range(len(self.objects)))
        contents = {
            "HEAD": f"ref: {BRANCH}\n".encode(),
            BRANCH: f"{base}\n".encode(),
            "config": config.encode(),
            "objects/info/alternates": alternates.encode(),
        }
        if self.shallow:
            contents["shallow"] = self.shallow
        if not exact:
            contents[BEHIND] = b""
        for name, content in contents.items():
            create_file(f"{folder}/{name}", content)
        return Decoy(folder, self.objects, index, self.excluded)


def _with_alternates(objects: Path) -> list[Path]:
    """A folder of objects and those that it borrows from, as git resolves them."""
    folders = [objects]
    for folder in folders:
        for line in _content(folder / "info/alternates").splitlines():
            other = Path(os.path.normpath(folder / os.fsdecode(line)))
            if line[:1] not in {b"#", b'"', b""} and other not in folders and other.is_dir():
                folders.append(other)
        if len(folders) > MAX_ALTERNATES:
            break
    return folders


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
