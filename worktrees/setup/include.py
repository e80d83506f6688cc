"""Files that git does not know and workers need all the same: what `.worktreeinclude` and the configuration name.

They are copied from the user's worktree once, when the workshop opens, and laid into each worktree from that copy. Only
files that git ignores: others would look like a worker's change.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.ports import FleetError
from worktrees.change import folders_above
from worktrees.git import GitFailed, ask_git, fields, text
from worktrees.scan import is_git_name
from worktrees.settings import MIB
from worktrees.target import Target
from worktrees.view import View
from worktrees.wipe import make_folder

NAMED_BY = ".worktreeinclude"
MOST_BYTES = 64 * MIB
MOST_FILES = 2_000


@dataclass(frozen=True, slots=True)
class Included:
    """A copy of the files, and what is known of them."""

    folder: Path
    paths: tuple[str, ...] = ()
    digest: str = ""

    def lay(self, view: View, to: Path) -> None:
        """Put them where a view has room for them: never over a file, never through a link."""
        for path in self.paths:
            if view.find(path) is not None or any(view.is_file(above) for above in folders_above(path)):
                continue
            make_folder((to / path).parent)
            (to / path).write_bytes((self.folder / path).read_bytes())
            (to / path).chmod((self.folder / path).stat().st_mode & 0o777)


async def gather(target: Target, patterns: Sequence[str], to: Path) -> Included:
    """Copy them out of the user's worktree. Raises `FleetError` when they are too many."""
    named = await to_thread.run_sync(_patterns, target.root, tuple(patterns))
    if target.bare or not named:
        return Included(to)
    with TemporaryDirectory(prefix="fleet-include-") as folder:
        rules = Path(folder, "rules")
        await to_thread.run_sync(rules.write_bytes, named)
        found = await _ask(target, "ls-files", "-z", "--others", "--ignored", f"--exclude-from={rules}")
    if not found:
        return Included(to)
    asked = b"".join(b"./" + os.fsencode(path) + b"\0" for path in found)
    ignored = await _ask(target, "check-ignore", "-z", "--stdin", data=asked)
    paths = sorted(path.removeprefix("./") for path in ignored)
    return await to_thread.run_sync(_copy, target.root, paths, to)


def _patterns(root: Path, more: Sequence[str]) -> bytes:
    file = root / NAMED_BY
    own = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
    return b"\n".join(part for part in (own, "\n".join(more).encode()) if part.strip())


async def _ask(target: Target, *args: str, data: bytes = b"") -> list[str]:
    env = {"GIT_LITERAL_PATHSPECS": "0"}
    answer = await ask_git("-C", str(target.root), *args, env=env, data=data)
    if answer.exit_code not in {0, 1}:
        raise GitFailed(args, answer.exit_code, text(answer.stderr))
    return fields(answer.stdout)


def _copy(root: Path, paths: Sequence[str], to: Path) -> Included:
    digest, kept, left = hashlib.sha256(), list[str](), MOST_BYTES
    for path in paths:
        if any(is_git_name(part) for part in path.split("/")):
            continue
        try:
            fd = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a link, or gone since it was listed
            continue
        with os.fdopen(fd, "rb") as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode):
                continue
            left -= status.st_size
            if left < 0 or len(kept) >= MOST_FILES:
                raise FleetError(
                    f"{NAMED_BY} and [worktrees] include name more than {MOST_FILES} files or {MOST_BYTES // MIB} "
                    "megabytes; name less, or show folders to workers with [box] read_only"
                )
            content = source.read()
        make_folder((to / path).parent)
        (to / path).write_bytes(content)
        (to / path).chmod(stat.S_IMODE(status.st_mode) & 0o777)
        kept.append(path)
        digest.update(repr((path, status.st_mode & 0o777, hashlib.sha256(content).hexdigest())).encode())
    return Included(to, tuple(kept), digest.hexdigest() if kept else "")
