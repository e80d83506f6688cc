"""What the engine needs of the worktrees: leases to work and check in, commits to read, and a branch to land on."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.facts.facts import CheckRun, Failure, Member, SetupRun
from fleet.core.plans.plan import Criterion
from fleet.ports.agents import Repository, Workspace


class EffectError(Exception):
    """An effect could not be carried out. The engine records the failure instead of a result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


class SetupFailedError(EffectError):
    """The set-up command failed on a commit that differs from the run's base in files that the set-up depends on."""

    def __init__(self, failure: Failure, check: CheckRun) -> None:
        super().__init__(failure)
        self.check = check


@dataclass(frozen=True, slots=True)
class Change:
    """A worker's change, committed and pinned."""

    commit: Sha
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What the message of a commit says."""

    run: RunId
    subtask: SubtaskId
    attempt: int
    title: str
    body: str
    worker: str
    model: str | None
    unfinished: bool = False
    """Whether a failed attempt left it behind: it is kept, but never counts as finished work."""


class Lease(Protocol):
    """A worktree that belongs to one attempt or check for a while."""

    @property
    def workspace(self) -> Workspace: ...

    async def check(self, criterion: Criterion, *, lands: bool = False) -> CheckRun:
        """Run a check here, in a box of its own. It leaves what it writes here: each verdict takes a lease.

        Where `lands` is true, finished work waits for it in the merge queue, and it comes before other checks.
        """
        ...

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        """Scan what changed, commit and pin it. Called once nothing runs in the box any more."""
        ...


OpenLease = Callable[[Sha], AbstractAsyncContextManager[Lease]]
"""Opens a clean worktree at a commit, for as long as the block lasts. Raises `EffectError`."""


class Worktrees(Protocol):
    def lease(self, base: Sha, /) -> AbstractAsyncContextManager[Lease]:
        """As `OpenLease` says."""
        ...

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        """The change that an attempt pinned, if it got that far before a crash."""
        ...

    def finished_setups(self) -> tuple[SetupRun, ...]:
        """The runs of the set-up command since this was asked last."""
        ...

    async def restored(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        """A copy of a commit with some paths as on `base`, or without them: for checks, never to land."""
        ...


class Commits(Protocol):
    """The commits that worktrees made, and those they started from."""

    def at(self, commit: Sha) -> Repository: ...

    async def tree(self, commit: Sha) -> Sha: ...

    async def diff(self, base: Sha, commit: Sha) -> str: ...


@dataclass(frozen=True, slots=True)
class Merged:
    """Candidates on top of a tip, one commit each. The branch has not moved yet."""

    tip: Sha
    landed: tuple[Member, ...]
    conflicts: tuple[tuple[Member, Failure], ...]


class Integrator(Protocol):
    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged: ...

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        """Move the integration branch from `old` to `new`; return False if it is not at `old`."""
        ...

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        """The commits on the integration branch from `old` to its tip, oldest first, read from their trailers."""
        ...


Publish = Callable[[RunId, Sha], Awaitable[str | None]]
"""Moves the user's result branch forward to a tip; returns the reason if that is impossible."""


@dataclass(frozen=True, slots=True)
class NamedCommits:
    """The commits that the journal of a resumed run names."""

    run: RunId
    base: Sha
    tip: Sha
    attempts: Mapping[tuple[SubtaskId, int], Sha] = field(default_factory=dict)
    """Finished work."""
    kept: Mapping[tuple[SubtaskId, int], Sha] = field(default_factory=dict)
    """Unfinished work of attempts that failed."""
    landed: tuple[Sha, ...] = ()
    """Commits of the integration branch whose own tree passed: the branch may be set to each of them."""
    underway: frozenset[tuple[SubtaskId, int]] = frozenset()
    """Attempts that may have landed without the journal's knowledge."""
    published: Sha | None = None
    written_since: float | None = None
    """If the last engine was killed: what was written after this time may not have reached the disk."""


@dataclass(frozen=True, slots=True)
class RecoveredCommits:
    """Which of these commits exist, after everything was restored that could be."""

    tip: Sha
    """The tip of the integration branch, without commits that its trailers do not explain."""
    below: frozenset[Sha] = frozenset()
    """The commits on the integration branch, if it had to go back."""
    gone: frozenset[Sha] = frozenset()
    shown: bool = True
    """Whether the user's repository has the result branch, as far as it was published."""


Recover = Callable[[NamedCommits], Awaitable[RecoveredCommits]]
"""Restores what can be restored; returns what exists then."""
