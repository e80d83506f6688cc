"""Reads branches, files and history of a repository through GitPython: the one file that knows that library.

A `git.Repo` leaks descriptors and `cat-file` children until it is closed, and hangs when threads share one. So every
call opens its own inside one thread and closes it there. Nothing here writes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import git as gitpython
from anyio import to_thread

from fleet.core.facts import Failure
from fleet.ports import Broken
from worktrees.git import environment

LONGEST_BLOB = 1024 * 1024


async def branches(path: Path) -> tuple[str, ...]:
    """The names of the local branches and tags."""
    return await to_thread.run_sync(_branches, path)


async def peek(path: Path, commit: str, names: Sequence[str]) -> dict[str, bytes]:
    """The contents of those of `names` that are files of `commit`, each up to a megabyte."""
    return await to_thread.run_sync(_peek, path, commit, tuple(names))


async def history(path: Path, commit: str, *, about: str | None, limit: int) -> str:
    """The newest commits up to `commit`, one line each: id, date, author, subject."""
    return await to_thread.run_sync(_history, path, commit, about, limit)


@contextmanager
def _open(path: Path) -> Iterator[gitpython.Repo]:
    try:
        with gitpython.Repo(path, expand_vars=False) as repo:
            repo.git.update_environment(**environment(), GIT_DIR=str(repo.git_dir))
            yield repo
    except (gitpython.exc.GitError, gitpython.exc.ODBError, OSError, ValueError) as error:
        raise Broken(Failure(kind="infrastructure", summary=f"{path} can't be read: {error}")) from error


def _branches(path: Path) -> tuple[str, ...]:
    with _open(path) as repo:
        return (*(head.name for head in repo.heads), *(tag.name for tag in repo.tags))


def _peek(path: Path, commit: str, names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with _open(path) as repo:
        blobs = {str(blob.path): blob for blob in repo.commit(commit).tree.blobs}
        for name in names:
            if name in blobs:
                found[name] = blobs[name].data_stream.read(LONGEST_BLOB)
    return found


def _history(path: Path, commit: str, about: str | None, limit: int) -> str:
    lines: list[str] = []
    with _open(path) as repo:
        for found in repo.iter_commits(commit, paths=about or "", max_count=limit):
            author = found.author.name or "unknown"
            day = found.authored_datetime.date().isoformat()
            lines.append(f"{found.hexsha[:10]} {day} {author}: {found.summary!s}")
    return "\n".join(lines)
