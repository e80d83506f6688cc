"""The last commits of a branch along first parents, each with what it changed: what a rehearsal replays.

A merge counts as one commit that brings everything it merged, so that the line ends in the tree that history has.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from worktrees.git.program import Git, text
from worktrees.git.repository import Repository

MERGED = 20  # messages of merged commits that are read
FORMAT = "%H %T %P%n%B"


@dataclass(frozen=True, slots=True)
class LineCommit:
    """One commit of the line."""

    id: Sha
    tree: Sha
    parent: Sha
    """Its first parent."""
    message: str
    paths: tuple[str, ...] = ()
    """What differs from its first parent, in git's order; bytes that are not UTF-8 as surrogates."""
    is_merge: bool = False

    @property
    def subject(self) -> str:
        return self.message.strip().partition("\n")[0]


async def last_commits(repository: Repository, head: Sha, most: int) -> tuple[LineCommit, ...]:
    """At most so many commits below `head`, the oldest first. The first commit of a history has nothing below it."""
    walk = ("log", "-z", "--first-parent", "--no-show-signature", f"--max-count={most}", f"--format={FORMAT}")
    entries = text(await repository.git(*walk, head)).split("\0")
    commits = [commit for entry in entries if (commit := _parsed(entry)) is not None]
    return tuple([await _with_paths(repository, commit) for commit in reversed(commits)])


async def merged_messages(repository: Repository, merge: LineCommit) -> str:
    """The message of a merge and, below it, those of the latest commits that it merged: they say what it brings."""
    walk = ("log", "-z", "--no-merges", "--no-show-signature", f"--max-count={MERGED}", "--format=%B")
    entries = text(await repository.git(*walk, merge.id, f"^{merge.parent}")).split("\0")
    return "\n\n".join((merge.message.strip(), *(entry.strip() for entry in entries if entry.strip())))


async def commits_of(repository: Repository, ids: Iterable[Sha]) -> dict[Sha, LineCommit]:
    """These commits by id, without what they changed."""
    walk = ("log", "-z", "--no-walk=unsorted", "--no-show-signature", f"--format={FORMAT}", "--stdin")
    entries = text(await repository.git(*walk, data="".join(f"{id_}\n" for id_ in ids).encode())).split("\0")
    return {commit.id: commit for entry in entries if (commit := _parsed(entry)) is not None}


def _parsed(entry: str) -> LineCommit | None:
    """None for a commit without a parent: at the beginning of a history, or at the edge of a shallow one."""
    ids, _, message = entry.lstrip("\n").partition("\n")
    match ids.split():
        case [id_, tree, parent, *others]:
            return LineCommit(id_, tree, parent, message, is_merge=bool(others))
        case _:
            return None


async def _with_paths(repository: Repository, commit: LineCommit) -> LineCommit:
    paths = (await repository.diff(commit.parent, commit.id)).paths
    return LineCommit(commit.id, commit.tree, commit.parent, commit.message, paths, commit.is_merge)


async def missing_objects(git: Git, base: Sha, head: Sha) -> int:
    """How many objects between two commits the repository does not have, as in a partial clone."""
    walk = ("rev-list", "--objects", "--no-object-names", "--missing=print", head, f"^{base}")
    return sum(line.startswith("?") for line in text((await git.ask(*walk)).stdout).splitlines())
