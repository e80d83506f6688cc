"""Puts candidates on top of the integration branch without a worktree, and moves that branch by compare-and-swap.

History stays linear, one commit per subtask, with the author, message and trailers of the candidate. This module does
not test a merged tree. It only checks that the tree differs from the tip in nothing except the subtask's changes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import RunId, Sha, aside_ref, tip_ref
from fleet.core.facts.facts import Failure, Member
from fleet.ports.worktrees import Merged
from worktrees.base.fs import printable
from worktrees.base.process import effect_error
from worktrees.git.merge import MergeConflict, conflict_failure
from worktrees.git.object_format import Person, member_of
from worktrees.git.program import Git, text
from worktrees.git.repository import MergedTree, Repository
from worktrees.store.store import Store

LISTED = 50
NOTHING_LEFT = Failure(kind="empty", summary="landed work already contains this change")


@dataclass(frozen=True, slots=True)
class StoreIntegrator:
    """The integration branch of the runs in a store."""

    store: Store
    committer: Person

    @property
    def repository(self) -> Repository:
        return self.store.repository

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        """Merge candidates. A member that does not merge is left out with the reason."""
        landed, conflicts = list[Member](), list[tuple[Member, Failure]]()
        for member in members:
            commit = await self.rebase(tip, member.commit)
            if isinstance(commit, Failure):
                conflicts.append((member, commit))
            else:
                tip = commit
                landed.append(member.model_copy(update={"commit": commit}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def rebase(self, tip: Sha, commit: Sha) -> Sha | Failure:
        """Return the commit on top of the tip: itself if the tip is its parent, else a copy."""
        parent = (await self.repository.commit(commit)).parents[0]
        tree = await self.merged_tree(tip, commit, onto=tip)
        if isinstance(tree, Failure) or parent == tip:
            return tree if isinstance(tree, Failure) else commit
        return await self.repository.copy_commit(commit, tree, tip, committer=self.committer)

    async def merged_tree(self, tip: Sha, commit: Sha, *, onto: Sha) -> Sha | Failure:
        """Return the tree of a tip with the change of a commit.

        The merge is made on `onto`: the tip itself, or a commit with its tree that descends from the commit's parent.
        """
        candidate, tip_commit = await self.repository.commit(commit), await self.repository.commit(tip)
        parent = candidate.parents[0]
        if parent == tip:
            return NOTHING_LEFT if candidate.tree == tip_commit.tree else candidate.tree
        merged = await self.repository.merge(onto, commit)
        if isinstance(merged, MergeConflict):
            return await conflict_failure(self.store.git, merged, base=parent, tip=tip)
        if merged.tree == tip_commit.tree:
            return NOTHING_LEFT
        strays = await self._stray_paths(merged, parent, tip)
        return _stray_failure(strays) if strays else merged.tree

    async def _stray_paths(self, merged: MergedTree, base: Sha, tip: Sha) -> list[str]:
        """Return paths in which a merge differs from the tip although the candidate did not change them.

        There is one exception: a candidate's change may follow a file that landed work renamed.
        """
        strays = [path for path in merged.moved if path not in merged.changed]
        if strays:
            renames = (await self.repository.diff(base, tip, renames=True)).entries
            followed = {entry.path for entry in renames if entry.renamed_from in merged.changed}
            strays = [path for path in strays if path not in followed]
        return [printable(path) for path in strays]

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.repository.refs.swap(tip_ref(run), new=new, old=old)

    async def tip(self, run: RunId) -> Sha:
        tip = await self.repository.commit_at(tip_ref(run))
        if tip is None:
            raise effect_error(f"no integration branch for {run} in the store")
        return tip

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        """Commits added or removed manually are not landings: the branch is reset, and a ref beside it keeps them."""
        tip = await self.repository.commit_at(tip_ref(run))
        if tip == old:
            return ()
        if tip is not None:
            members = await landed_since(self.store.git, run, old=old, tip=tip)
            above = await self.store.git.ask("rev-list", "--count", "--first-parent", f"{old}..{tip}")
            if members and text(above.stdout).strip() == str(len(members)):
                return members
            await self.repository.refs.pin(aside_ref(run, tip), tip)
        await self.repository.refs.pin(tip_ref(run), old)
        return ()


async def landed_since(git: Git, run: RunId, *, old: Sha, tip: Sha) -> tuple[Member, ...]:
    """Return the run's commits on an integration branch above `old`, oldest first, read from the trailers."""
    if old == tip:
        return ()
    walk = ("log", "-z", "--reverse", "--first-parent", "--no-show-signature", "--format=%H%n%B")
    entries = text(await git(*walk, f"{old}..{tip}")).split("\0")
    split = (entry.partition("\n") for entry in entries if entry.strip())
    members = (member_of(Sha(commit.strip()), message, run) for commit, _, message in split)
    return tuple(member for member in members if member is not None)


def _stray_failure(paths: Sequence[str]) -> Failure:
    more = [f"... and {len(paths) - LISTED} more"] if len(paths) > LISTED else []
    return Failure(
        kind="conflict",
        summary=f"merging it would change files outside its change: {', '.join(paths[:5])}",
        evidence="\n".join((*paths[:LISTED], *more)),
    )


# ---- line ------------------------------------------------------------------------------------------------------------
# The last commits of a branch along first parents, each with its changes: the input of a rehearsal.
#
# A merge counts as one commit with all merged changes, so that the line ends in the same tree as history.


MERGED = 20  # messages to read from merged commits
FORMAT = "%H %T %P%n%B"


@dataclass(frozen=True, slots=True)
class LineCommit:
    """A commit of the line."""

    id: Sha
    tree: Sha
    parent: Sha
    """The first parent."""
    message: str
    paths: tuple[str, ...] = ()
    """The differences from its first parent, in git's order. Bytes that are not UTF-8 are surrogates."""
    is_merge: bool = False

    @property
    def subject(self) -> str:
        return self.message.strip().partition("\n")[0]


async def last_commits(repository: Repository, head: Sha, most: int) -> tuple[LineCommit, ...]:
    """Return up to this many commits below `head`, oldest first. Root commits are left out."""
    walk = ("log", "-z", "--first-parent", "--no-show-signature", f"--max-count={most}", f"--format={FORMAT}")
    entries = text(await repository.git(*walk, head)).split("\0")
    commits = [commit for entry in entries if (commit := _parsed(entry)) is not None]
    return tuple([await _with_paths(repository, commit) for commit in reversed(commits)])


async def merged_messages(repository: Repository, merge: LineCommit) -> str:
    """Return the message of a merge and, below it, those of the latest merged commits, which describe the change."""
    walk = ("log", "-z", "--no-merges", "--no-show-signature", f"--max-count={MERGED}", "--format=%B")
    entries = text(await repository.git(*walk, merge.id, f"^{merge.parent}")).split("\0")
    return "\n\n".join((merge.message.strip(), *(entry.strip() for entry in entries if entry.strip())))


async def commits_of(repository: Repository, ids: Iterable[Sha]) -> dict[Sha, LineCommit]:
    """Return these commits by id, without their changes."""
    walk = ("log", "-z", "--no-walk=unsorted", "--no-show-signature", f"--format={FORMAT}", "--stdin")
    entries = text(await repository.git(*walk, data="".join(f"{id_}\n" for id_ in ids).encode())).split("\0")
    return {commit.id: commit for entry in entries if (commit := _parsed(entry)) is not None}


def _parsed(entry: str) -> LineCommit | None:
    """Return None for a commit without a parent: a root commit, or the edge of a shallow clone."""
    ids, _, message = entry.lstrip("\n").partition("\n")
    match [Sha(id_) for id_ in ids.split()]:
        case [id_, tree, parent, *others]:
            return LineCommit(id_, tree, parent, message, is_merge=bool(others))
        case _:
            return None


async def _with_paths(repository: Repository, commit: LineCommit) -> LineCommit:
    paths = (await repository.diff(commit.parent, commit.id)).paths
    return LineCommit(commit.id, commit.tree, commit.parent, commit.message, paths, commit.is_merge)


async def missing_objects(git: Git, base: Sha, head: Sha) -> int:
    """Return how many objects between two commits the repository does not have, as in a partial clone."""
    walk = ("rev-list", "--objects", "--no-object-names", "--missing=print", head, f"^{base}")
    return sum(line.startswith("?") for line in text((await git.ask(*walk)).stdout).splitlines())
