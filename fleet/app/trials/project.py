"""Reads a repository's checkout for `fleet.recipes`: names from git, beginnings of texts. Its contents are hostile.

Links are not followed, pipes are not waited for, and sizes and numbers are limited. Nothing of the repository runs.
"""

import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path

from fleet.errors import FleetError
from fleet.recipes.tree import Tree, usable_names
from worktrees.git.program import ask_git, fields

LARGEST_TEXT = 256 * 1024  # bytes that are read of one file
MOST_TEXTS = 400
MOST_IGNORED = 2_000


async def read_project(root: Path, has_program: Callable[[str], bool]) -> Tree:
    """The files of the checkout at `root`, as detection sees them. Raises `FleetError`."""
    tracked = await _list(root, "--cached")
    ignored = await _list(root, "--others", "--ignored", "--exclude-standard", "--directory")
    names = usable_names(tracked)
    few = usable_names(ignored)[:MOST_IGNORED]
    return Tree(names, _reader(root), few, has_program, known=frozenset(names))


async def _list(root: Path, *options: str) -> list[str]:
    env = {"GIT_LITERAL_PATHSPECS": "0"}
    answer = await ask_git("-C", str(root), "ls-files", "-z", *options, env=env)
    if answer.exit_code != 0:
        raise FleetError(f"{root}: git can't list its files: {answer.stderr.decode('utf-8', 'replace').strip()[-200:]}")
    return fields(answer.stdout)


def _reader(root: Path) -> Callable[[str], str]:
    real, count = os.path.realpath(root), 0

    @cache
    def read(name: str) -> str:
        nonlocal count
        count += 1
        path = os.path.join(real, name)  # noqa: PTH118 - compared with the real path, as text
        if count > MOST_TEXTS or os.path.realpath(path) != path:
            return ""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return ""
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return ""
            return file.read(LARGEST_TEXT).decode("utf-8", "replace")

    return read
