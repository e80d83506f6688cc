"""The branch of a pull request: fetched, kept in the user's repository while a round lasts, and moved forward.

What is pushed was tested on the commit that it stands on: where others have pushed meanwhile, the commits of a round
land again on top of theirs, as `fleet merge` does it. Nothing is ever pushed by force.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from fleet.app.fleet import Fleet
from fleet.app.merging.taking import Resolving, Taking
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.views.pulls_view import MergeView
from fleet.errors import FleetError
from fleet.runs.crash_points import reached
from fleet.runs.run_folder import RunFolder
from worktrees.git.commit_message import RUN, TASK, parse_trailers
from worktrees.git.program import text
from worktrees.store.store import Store
from worktrees.target.publish import Remote, push
from worktrees.target.target import Target

Work = Callable[[RunFolder], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PullBranch:
    """The head of one pull request."""

    target: Target
    store: Store
    remote: Remote
    name: str
    """On the remote."""
    run: str
    """The run that the pull request is of."""
    number: int

    @property
    def local(self) -> str:
        """Its name in the user's repository, while a round lasts."""
        return f"fleet/{self.run}-pr{self.number}"

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.local}"

    async def fetch(self) -> Sha | None:
        """The head as the remote has it now; None if the branch is gone."""
        return await self.remote.fetch(self.name, f"refs/fleet/{self.run}/pulls/{self.number}")

    async def is_on(self, commit: Sha, head: Sha) -> bool:
        return await self.store.git.is_ancestor(commit, head)

    async def bring(self, head: Sha) -> None:
        """Let the branch in the user's repository be at the head. What it was at is kept in the store."""
        current = await self.target.git.sha(self._ref)
        if current == head:
            return
        if current is not None and await self.store.git.sha(current) is not None:
            await self.store.git("update-ref", f"refs/fleet/{self.run}/overwritten/{current}", current)
        if (problem := await push(self.store.git, self.target, head, self._ref, current)) is not None:
            raise FleetError(f"{self.local} can't be set to the head of the pull request: {problem.strip()}")
        reached("the head of a pull request is in the user's repository")

    async def put_on(self, fleet: Fleet, round_run: RunFolder, head: Sha, work: Work, dollars: float) -> MergeView:
        """The commits of a round on top of a head, tested there. Raises `NotTakenError`."""
        await self.bring(head)
        resolving = Resolving(wanted=dollars > 0, dollars=dollars if dollars > 0 else None)
        return await Taking(fleet, round_run, work, resolving).take(Path(self.target.root), self.local)

    async def push(self, commit: Sha) -> None:
        """Move the head of the pull request forward. Raises `RemoteMovedError` or `RemoteError`."""
        await self.remote.push(commit, self.name)

    async def remove_local(self) -> None:
        """Remove the branch from the user's repository: the remote has it."""
        if (current := await self.target.git.sha(self._ref)) is not None:
            await self.target.git.ask("update-ref", "-d", self._ref, current)

    async def landed(self, head: Sha, onto: Sha, runs: frozenset[str]) -> dict[SubtaskId, Sha]:
        """The subtasks of these runs that have a commit between two commits, each with its last one."""
        walk = ("log", "-z", "--reverse", "--no-show-signature", "--format=%H%n%B", f"{onto}..{head}")
        found: dict[SubtaskId, Sha] = {}
        for entry in text(await self.store.git(*walk)).split("\0"):
            commit, _, message = entry.strip("\n").partition("\n")
            trailers = parse_trailers(message)
            if trailers.get(RUN, "") in runs:
                found[trailers.get(TASK, "")] = commit
        return found
