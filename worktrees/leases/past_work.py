"""The engine's worktrees, commits and integration branch where workers do commits of history again.

Every attempt starts from the parent of its commit, so each result is judged on the tree it was made on, and none
depends on another. What lands is a copy of the result on top of whatever landed before: the integration branch holds
them in a row, each with exactly the tree of the result. No agent ever sees such a copy.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.state.facts import Member, SetupRun
from fleet.ports.agents import Repository
from fleet.ports.worktrees import Change, Integrator, Lease, Merged
from worktrees.git.commit_message import Person
from worktrees.leases.run_worktrees import RunWorktrees


@dataclass(slots=True)
class PastWork:
    """Satisfies `Worktrees`, `Commits` and `Integrator`."""

    worktrees: RunWorktrees
    integrator: Integrator
    base: Sha
    """The parent of the oldest commit: the only tree that comes before all of them."""
    starts: frozenset[Sha]
    """The parents of all commits."""
    committer: Person
    _results: dict[Sha, Sha] = field(default_factory=dict)
    """The result that each copy on the integration branch is of."""

    # ---- worktrees

    def lease(self, base: Sha) -> AbstractAsyncContextManager[Lease]:
        return self._lease(self._results.get(base, base))

    @asynccontextmanager
    async def _lease(self, base: Sha) -> AsyncIterator[Lease]:
        async with self.worktrees.lease(base) as lease:
            yield lease

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        return await self.worktrees.pinned(run, subtask, attempt)

    async def restored(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        return await self.worktrees.restored(self._results.get(commit, commit), base, paths)

    def finished_setups(self) -> tuple[SetupRun, ...]:
        return self.worktrees.finished_setups()

    # ---- commits

    def at(self, commit: Sha) -> Repository:
        """The files that attempts start from. Of the tip, which may be of a later commit, those of the base."""
        return self.worktrees.at(commit if commit in self.starts else self.base)

    async def tree(self, commit: Sha) -> Sha:
        return await self.worktrees.tree(commit)

    async def diff(self, base: Sha, commit: Sha) -> str:
        return await self.worktrees.diff(base, commit)

    # ---- the integration branch

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        """Each result as it is, in a row."""
        landed = list[Member]()
        repository = self.worktrees.store.repository
        for member in members:
            tree = (await repository.commit(member.commit)).tree
            tip = await repository.copy_commit(member.commit, tree, tip, committer=self.committer)
            self._results[tip] = member.commit
            landed.append(member.model_copy(update={"commit": tip}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=())

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.integrator.advance(run, new=new, old=old)

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        return await self.integrator.landed_since(run, old)
