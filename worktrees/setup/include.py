"""Included files: files that git ignores and workers need, named by `.worktreeinclude` and the configuration.

They are copied from the user's worktree once, when a run opens its worktrees, and from there into each worktree. Only
files that git ignores are copied: others would look like a worker's change.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.paths import folders_above
from fleet.errors import FleetError
from worktrees.base.fs import make_folder
from worktrees.base.settings import MIB
from worktrees.changes.scan import is_git_name
from worktrees.changes.union_view import View
from worktrees.git.program import GitError, fields
from worktrees.target.target import Target

NAMED_BY = ".worktreeinclude"
MAX_BYTES = 64 * MIB
MAX_FILES = 2_000


@dataclass(frozen=True, slots=True)
class Included:
    """The copy of the files."""

    folder: Path
    paths: tuple[str, ...] = ()
    digest: str = ""

    def copy_into(self, view: View, folder: Path) -> None:
        """Copy them to a folder, except where `view` has a file at or above their path: never through a link."""
        for path in self.paths:
            if view.find(path) is None and not any(view.is_file(above) for above in folders_above(path)):
                source = self.folder / path
                _write(folder / path, source.read_bytes(), source.stat().st_mode)


async def gather_included(target: Target, patterns: Sequence[str], folder: Path) -> Included:
    """Copy the files out of the user's worktree. Raises `FleetError` when they are too many."""
    rules = await to_thread.run_sync(_rules, target.root, tuple(patterns))
    if target.bare or not rules:
        return Included(folder)
    with TemporaryDirectory(prefix="fleet-include-") as temporary:
        file = Path(temporary, "rules")
        await to_thread.run_sync(file.write_bytes, rules)
        named = await _ask(target, "ls-files", "-z", "--others", "--ignored", f"--exclude-from={file}")
    if not named:
        return Included(folder)
    data = b"".join(b"./" + os.fsencode(path) + b"\0" for path in named)
    ignored = await _ask(target, "check-ignore", "-z", "--stdin", data=data)
    paths = sorted(path.removeprefix("./") for path in ignored)
    return await to_thread.run_sync(_copy, target.root, paths, folder)


def _rules(root: Path, patterns: Sequence[str]) -> bytes:
    """The rules of `.worktreeinclude` and of the configuration."""
    file = root / NAMED_BY
    rules = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
    return b"\n".join(part for part in (rules, "\n".join(patterns).encode()) if part.strip())


async def _ask(target: Target, *args: str, data: bytes = b"") -> list[str]:
    env = {"GIT_LITERAL_PATHSPECS": "0"}
    answer = await target.checkout.ask(*args, env=env, data=data)
    if answer.exit_code not in {0, 1}:
        raise GitError(args, answer)
    return fields(answer.stdout)


def _copy(root: Path, paths: Sequence[str], folder: Path) -> Included:
    digest, copied, bytes_left = hashlib.sha256(), list[str](), MAX_BYTES
    for path in paths:
        if any(is_git_name(part) for part in path.split("/")):
            continue
        try:
            fd = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a link, or removed since it was listed
            continue
        with os.fdopen(fd, "rb") as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode):
                continue
            bytes_left -= status.st_size
            if bytes_left < 0 or len(copied) >= MAX_FILES:
                raise FleetError(
                    f"{NAMED_BY} and [worktrees] include name more than {MAX_FILES} files or {MAX_BYTES // MIB} "
                    "megabytes; name fewer files, or show folders to workers with [box] read_only"
                )
            content = source.read()
        _write(folder / path, content, status.st_mode)
        copied.append(path)
        digest.update(repr((path, status.st_mode & 0o777, hashlib.sha256(content).hexdigest())).encode())
    return Included(folder, tuple(copied), digest.hexdigest() if copied else "")


def _write(path: Path, content: bytes, mode: int) -> None:
    make_folder(path.parent)
    path.write_bytes(content)
    path.chmod(mode & 0o777)
