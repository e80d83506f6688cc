"""Puts the commits of a result on top of a branch that has moved, one by one, in the store.

Each commit is merged with its own parent as the base, as `git cherry-pick` does, so a commit that was taken before
leaves nothing and is passed over. What comes out is not tested here, and no branch of the user's has moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.core.base.ids import RunId, Sha
from fleet.core.facts.facts import Failure, Member
from fleet.ports import settings
from fleet.ports.worktrees import Merged, Signature
from worktrees.git.object_format import Person, compose
from worktrees.git.program import text
from worktrees.store.integrator import NOTHING_LEFT, StoreIntegrator
from worktrees.target.signing import put_taken


@dataclass(frozen=True, slots=True)
class Replayed:
    """The commits that came out, as far as it went."""

    tip: Sha
    pairs: tuple[tuple[Sha, Sha], ...] = ()
    """Each commit of the result, and its copy, the oldest first. Those that leave nothing are left out."""
    stuck: Sha | None = None
    """The commit that can't be put there as it is."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """How commits are copied."""

    integrator: StoreIntegrator
    signing: settings.GitSection | None = None
    taker: Person | None = None
    """Who takes the commits; None: they are copied as they are."""

    async def onto(self, tip: Sha, commits: Sequence[Sha]) -> Replayed:
        """The commits on top of a tip, up to the first that does not merge."""
        pairs: list[tuple[Sha, Sha]] = []
        for commit in commits:
            tree = await self._tree(tip, commit)
            if tree == NOTHING_LEFT:
                continue
            if isinstance(tree, Failure):
                return Replayed(tip, tuple(pairs), commit, tree)
            tip = await self._copy(commit, tree, tip)
            pairs.append((commit, tip))
        return Replayed(tip, tuple(pairs))

    async def _tree_of(self, commit: Sha) -> Sha:
        return (await self.integrator.repository.commit(commit)).tree

    async def _tree(self, tip: Sha, commit: Sha) -> Sha | Failure:
        repository, person = self.integrator.repository, self.integrator.committer
        parent = (await repository.commit(commit)).parents[0]
        tree = await self._tree_of(tip)
        onto = await repository.commit_tree(tree, parent, author=person, committer=person, message="A base\n")
        return await self.integrator.merged_tree(tip, commit, onto=onto)

    async def line(self, tip: Sha, commits: Sequence[tuple[Sha, Sha]]) -> Replayed:
        """A line of commits on top of a tip: by pairs, a commit with the author and the message, and one with the tree.

        One that changes nothing is left out.
        """
        pairs: list[tuple[Sha, Sha]] = []
        for source, landed in commits:
            tree = await self._tree_of(landed)
            if tree != await self._tree_of(tip):
                tip = await self._copy(source, tree, tip)
                pairs.append((source, tip))
        return Replayed(tip, tuple(pairs))

    async def merge(self, tip: Sha, commit: Sha) -> Sha | Failure:
        """A copy of a commit on top of a tip, also where nothing is left of it."""
        tree = await self._tree(tip, commit)
        if tree == NOTHING_LEFT:
            tree = await self._tree_of(tip)
        return tree if isinstance(tree, Failure) else await self._copy(commit, tree, tip)

    async def _copy(self, commit: Sha, tree: Sha, parent: Sha) -> Sha:
        repository = self.integrator.repository
        source = await repository.commit(commit)
        if self.signing is None or self.taker is None:
            if source.parents == (parent,) and source.tree == tree:
                return commit
            return await repository.copy_commit(commit, tree, parent, committer=self.integrator.committer)
        return await put_taken(
            self.integrator.store.git, self.signing, source, tree=tree, parent=parent, taker=self.taker
        )


@dataclass(frozen=True, slots=True)
class RelandingIntegrator:
    """Satisfies `Integrator`: a candidate that is a commit of the result is merged with its own parent as the base."""

    integrator: StoreIntegrator
    candidates: frozenset[Sha]

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        landed, conflicts = list[Member](), list[tuple[Member, Failure]]()
        for member in members:
            put = Replay(self.integrator).merge if member.commit in self.candidates else self.integrator.rebase
            commit = await put(tip, member.commit)
            if isinstance(commit, Failure):
                conflicts.append((member, commit))
            else:
                tip = commit
                landed.append(member.model_copy(update={"commit": commit}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.integrator.advance(run, new=new, old=old)

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        return await self.integrator.landed_since(run, old)


async def put_candidate(integrator: StoreIntegrator, commit: Sha, signature: Signature) -> Sha:
    """A commit of a result as a candidate of another run: the same change by the same author, with its trailers."""
    source = await integrator.repository.commit(commit)
    message = compose(signature).encode("utf-8", "replace")
    return await integrator.repository.copy_commit(
        commit, source.tree, source.parents[0], committer=integrator.committer, message=message
    )


async def commits_above(integrator: StoreIntegrator, base: Sha, tip: Sha) -> list[Sha] | None:
    """The commits from a base to a tip, the oldest first; None where their history is not a line."""
    walk = ("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{tip}")
    lines = [line.split() for line in text(await integrator.store.git(*walk)).splitlines()]
    if any(len(ids) != 2 for ids in lines):  # noqa: PLR2004 - a commit and its only parent
        return None
    return [Sha(ids[0]) for ids in lines]
