"""A commit of a worker's with some files as they were on its base: to see whether it passes with those, too.

It is looked at and never lands, so no ref names it. Made by git in an index of its own: it is wanted rarely, and a path
may be a folder on one side.
"""

import os
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.core.ids import Sha
from worktrees.git import Git
from worktrees.message import Person


async def restored(git: Git, commit: Sha, base: Sha, paths: Collection[str], who: Person) -> Sha:
    """The commit on top of `commit` in which these paths are what they are on `base`. Raises `Broken`."""
    listed = await git("ls-tree", "-r", "-z", "--full-tree", base)
    wanted = {os.fsencode(path) for path in paths}
    kept = [line for line in listed.split(b"\0") if line.partition(b"\t")[2] in wanted]
    with TemporaryDirectory(prefix="restored-", dir=git.git_dir.parent) as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await git("read-tree", commit, env=env)
        entries = b"".join(line + b"\0" for line in kept)
        await git("update-index", "--add", "--replace", "-z", "--index-info", env=env, data=entries)
        tree = await git.line("write-tree", env=env)
    env = {**who.author(), **who.committer()}
    return await git.line("commit-tree", tree, "-p", commit, env=env, data=b"With the tests of its base\n")
