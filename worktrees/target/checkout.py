"""Moves a checkout of the user to a descendant of its commit, like `git merge --ff-only`, but without filters or hooks.

Files come first, then the index, then (by the caller) the branch. A kill in between leaves the branch unchanged and
files of the new commit in the checkout. The next call recognizes and completes them. If a changed file needs a filter,
the checkout stays unchanged.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.errors import FleetError, UsageError
from fleet.runs.crash_points import reached
from worktrees.base.fs import printable
from worktrees.base.process import os_errors
from worktrees.git.program import Git, fields, text
from worktrees.target.target import Target

SHOWN = 5  # paths in a message
STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=all")
CHANGED = ("diff-tree", "-r", "-z", "--no-renames", "--name-only")
DIFFERING = ("diff-index", "--cached", "-z", "--no-renames", "--name-only")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A worktree of the user's repository."""

    root: Path
    git: Git

    @property
    def index(self) -> Path:
        return self.git.git_dir / "index"


async def find_checkout(target: Target, branch: str) -> Checkout | None:
    """Return the user's worktree that has `branch` checked out."""
    target.stand_in.renew_head()
    root = own_dir = Path()
    for number, record in enumerate((await target.git("worktree", "list", "--porcelain", "-z")).split(b"\0\0")):
        lines = fields(record)
        if f"branch refs/heads/{branch}" not in lines:
            continue
        if number == 0:  # the first one: git prints the path of the stand-in for it
            root, own_dir = target.main_root, target.git_dir
        else:
            root = Path(lines[0].removeprefix("worktree "))
            own_dir = await to_thread.run_sync(_own_dir, target.git_dir, root)
        return Checkout(root, Git(own_dir, root, target.stand_in))
    return None


def _own_dir(git_dir: Path, root: Path) -> Path:
    """Return the folder with a linked worktree's HEAD and index."""
    for folder in (git_dir / "worktrees").iterdir():
        with os_errors(f"{folder} can't be read"):
            named = folder / (folder / "gitdir").read_text(encoding="utf-8").strip()
            if named.parent.resolve() == root.resolve():
                return folder
    raise UsageError(f"{root} is not a worktree of {git_dir}", hint="git worktree repair")


async def refuse_unfit(checkout: Checkout, *, old: Sha, new: Sha, branch: str) -> tuple[str, ...]:
    """Return the paths that are already as in `new`. Raises `UsageError` if a person has to act first."""
    changed = fields(await checkout.git(*CHANGED, old, new))
    added = fields(await checkout.git(*CHANGED, "--diff-filter=A", old, new))
    dirty = await _uncommitted(checkout)
    present = [path for path in added if os.path.lexists(checkout.root / path)]  # noqa: ASYNC240 - a few names
    done = await _as_in(checkout, new, {*dirty, *present} & {*changed})
    _refuse([path for path in dirty if path not in done], checkout, branch)
    _refuse_unknown([path for path in present if path not in done], checkout)
    await _refuse_filtered(checkout, new, changed, branch)
    return tuple(done)


async def refuse_early(checkout: Checkout, store: Git, *, at: Sha, since: Sha, until: Sha, branch: str) -> None:
    """Raise `UsageError` if the changes between two commits can't be applied to a checkout at a third one.

    The commits may be only in the store.
    """
    _refuse(await _uncommitted(checkout), checkout, branch)
    changed, brought = [fields(await store(*CHANGED, *options, since, until)) for options in ((), ("--diff-filter=A",))]
    known = set(fields(await store("ls-tree", "-r", "-z", "--name-only", at)))
    present = [path for path in brought if path not in known and os.path.lexists(checkout.root / path)]  # noqa: ASYNC240 - a few names
    _refuse_unknown(present, checkout)
    await _refuse_filtered(checkout, at, changed, branch)


def _refuse_unknown(paths: Sequence[str], checkout: Checkout) -> None:
    if paths:
        raise UsageError(
            f"{checkout.root} contains untracked files that the result adds: {_list(paths)}",
            hint="move them elsewhere, then try again",
        )


async def _refuse_filtered(checkout: Checkout, new: Sha, changed: Sequence[str], branch: str) -> None:
    if filtered := await _filtered(checkout, new, changed):
        raise UsageError(
            "a git filter converts these files on checkout, and fleet does not run filters of a repository: "
            f"{_list(filtered)}",
            hint=f"switch {checkout.root} to another branch, try again with --into {branch}, and switch back",
        )


def _refuse(paths: Sequence[str], checkout: Checkout, branch: str) -> None:
    if paths:
        raise UsageError(
            f"{branch} is checked out in {checkout.root} with uncommitted changes: {_list(paths)}",
            hint="commit or stash them and try again, or merge into another branch with --into",
        )


async def _uncommitted(checkout: Checkout) -> list[str]:
    return [entry[3:] for entry in fields(await checkout.git(*STATUS))]


async def forward(checkout: Checkout, *, old: Sha, new: Sha, done: Sequence[str] = ()) -> None:
    """Move files and index from one commit to a descendant. Raises `FleetError` and restores them on failure."""
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        index = Path(folder, "index")
        before = await to_thread.run_sync(_copy, checkout.index, index)
        env = {"GIT_INDEX_FILE": str(index)}
        await checkout.git.ask("update-index", "-q", "--refresh", env=env)
        await _take_as_they_are(checkout, env, done)
        answer = await checkout.git.ask("read-tree", "-m", "-u", old, new, env=env)
        if answer.exit_code != 0:
            raise FleetError(f"{checkout.root} can't be updated: {text(answer.stderr).strip()}")
        reached("a checkout has the files of a result, and its index does not")
        if not await to_thread.run_sync(_replace, checkout.index, index, before):
            await checkout.git("read-tree", "-m", "-u", new, old, env=env)
            raise FleetError(f"another git process is running in {checkout.root}. It was not changed", hint="try again")
        reached("a checkout is at a result, and its branch is not")


async def _as_in(checkout: Checkout, new: Sha, paths: Collection[str]) -> set[str]:
    """Return the paths whose files are as in a commit, because an earlier call was killed."""
    if not paths:
        return set()
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await to_thread.run_sync(_copy, checkout.index, Path(folder, "index"))
        await _take_as_they_are(checkout, env, sorted(paths))
        differing = fields(await checkout.git(*DIFFERING, new, env=env))
    return set(paths) - set(differing)


async def _take_as_they_are(checkout: Checkout, env: dict[str, str], paths: Sequence[str]) -> None:
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    if names:
        await checkout.git.ask("update-index", "-z", "--add", "--remove", "--stdin", env=env, data=names)


async def _filtered(checkout: Checkout, new: Sha, paths: Sequence[str]) -> list[str]:
    """Return the paths with a filter in the attributes of a commit."""
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await checkout.git("read-tree", new, env=env)
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        answers = fields(await checkout.git("check-attr", "--cached", "-z", "--stdin", "filter", env=env, data=names))
    return [path for path, _, value in zip(*[iter(answers)] * 3, strict=True) if value not in {"unspecified", "unset"}]


def _copy(index: Path, to: Path) -> tuple[int, ...] | None:
    """Copy an index, and return its identity, or None if the checkout has none."""
    try:
        with index.open("rb") as source:
            to.write_bytes(source.read())
            return _identity(os.fstat(source.fileno()))
    except FileNotFoundError:
        return None


def _replace(index: Path, new: Path, before: tuple[int, ...] | None) -> bool:
    """Replace the index under git's lock, unless a git process has changed or locked the old one."""
    lock = index.with_name("index.lock")
    try:
        fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(fd, "wb") as file:
        file.write(new.read_bytes())
    if (_identity(index.stat()) if index.exists() else None) != before:
        lock.unlink()
        return False
    lock.replace(index)
    return True


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _list(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(map(printable, paths[:SHOWN])) + more
