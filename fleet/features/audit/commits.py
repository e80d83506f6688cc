"""A result branch as git has it. Knows nothing of what it is compared with.

Git is asked for names and bytes only, and the bytes are parsed here, so neither a graph file nor a graft nor a setting
of the repository can change what they say.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleet.core.base.ids import RunId, Sha, SubtaskId
from worktrees.git import reader
from worktrees.git.object_format import (
    ASSISTED,
    LONGEST_SUBJECT,
    RUN,
    TASK,
    WORKER,
    attempt_number,
    object_id,
    one_line,
    parse_commit,
    parse_trailers,
)
from worktrees.git.program import text
from worktrees.git.reader import read
from worktrees.target.target import locate


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as git has it, and the values of its trailers."""

    id: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    subject: str
    run: RunId | None
    subtask: SubtaskId | None
    attempt: int | None
    worker: str | None
    model: str | None
    sound: bool = True
    """Whether its content matches its id."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The result branch as git has it: the commits above the base, oldest first."""

    tip: Sha | None
    """None if the branch does not exist."""
    commits: tuple[Commit, ...]
    has_base: bool = True


async def read_result_branch(path: Path, branch: str, *, base: Sha, instead: Sha | None) -> Branch:
    """The commits of `branch` above `base`, the oldest first; of the commit `instead` where there is no such branch.

    Raises `UsageError` where there is no repository at `path`, and `EffectError` where it can't be read.
    """
    git = await locate(path)
    tip = await git.sha(f"refs/heads/{branch}")
    start = tip or (await git.sha(instead) if instead is not None else None)
    if start is None:
        return Branch(tip, ())
    if await git.sha(base) is None:
        return Branch(tip, (), has_base=False)
    stored = await read(git, partial(reader.commits_between, base=base, tip=start))
    return Branch(tip, tuple(_audited(id_, content) for id_, content in stored))


def _audited(id_: Sha, content: bytes) -> Commit:
    commit = parse_commit(content)
    message = text(commit.message)
    values = parse_trailers(message)
    return Commit(
        id=id_,
        tree=commit.tree,
        parents=commit.parents,
        subject=one_line(message.partition("\n")[0])[:LONGEST_SUBJECT],
        run=RunId(values[RUN]) if RUN in values else None,
        subtask=SubtaskId(values[TASK]) if TASK in values else None,
        attempt=attempt_number(values),
        worker=values.get(WORKER),
        model=values.get(ASSISTED),
        sound=object_id("commit", content, digits=len(id_)) == id_,
    )
