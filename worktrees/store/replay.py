"""Puts the commits of a result on top of a branch that has moved, one by one, in the store.

Each commit is merged with its own parent as the base, as in `git cherry-pick`, so a commit that was applied before
becomes empty and is skipped. The results are not tested here, and the user's branches do not move.
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
    """The new commits, as far as it got."""

    tip: Sha
    pairs: tuple[tuple[Sha, Sha], ...] = ()
    """Each commit of the result and its copy, oldest first. Empty ones are left out."""
    stuck: Sha | None = None
    """The commit that can't be applied."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Options for copying commits."""

    integrator: StoreIntegrator
    signing: settings.GitSection | None = None
    taker: Person | None = None
    """The person who takes the commits. None: copy them unchanged."""

    async def onto(self, tip: Sha, commits: Sequence[Sha]) -> Replayed:
        """Put the commits on top of a tip, up to the first that does not merge."""
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
        """Put commits on top of a tip. Each pair has a commit with the author and message, and one with the tree.

        Commits without changes are left out.
        """
        pairs: list[tuple[Sha, Sha]] = []
        for source, landed in commits:
            tree = await self._tree_of(landed)
            if tree != await self._tree_of(tip):
                tip = await self._copy(source, tree, tip)
                pairs.append((source, tip))
        return Replayed(tip, tuple(pairs))

    async def merge(self, tip: Sha, commit: Sha) -> Sha | Failure:
        """Copy a commit onto a tip, even if it becomes empty."""
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
    """Implements `Integrator`: a candidate that is a commit of the result is merged with its own parent as the base."""

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
    """Make a commit of a result a candidate of another run: the same change and author, with that run's trailers."""
    source = await integrator.repository.commit(commit)
    message = compose(signature).encode("utf-8", "replace")
    return await integrator.repository.copy_commit(
        commit, source.tree, source.parents[0], committer=integrator.committer, message=message
    )


async def commits_above(integrator: StoreIntegrator, base: Sha, tip: Sha) -> list[Sha] | None:
    """Return the commits from a base to a tip, oldest first, or None if their history is not linear."""
    walk = ("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{tip}")
    lines = [line.split() for line in text(await integrator.store.git(*walk)).splitlines()]
    if any(len(ids) != 2 for ids in lines):  # noqa: PLR2004 - a commit and its only parent
        return None
    return [Sha(ids[0]) for ids in lines]
