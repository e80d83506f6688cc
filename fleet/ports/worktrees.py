"""The engine's interface to worktrees: leases for work and checks, commits, and the integration branch."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.facts.facts import CheckRun, Failure, Member, SetupRun
from fleet.core.plans.plan import Criterion
from fleet.ports.agents import PlannerRepository, Workspace


class EffectError(Exception):
    """An effect could not be carried out. The engine records the failure instead of a result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.summary)
        self.failure = failure


class SetupFailedError(EffectError):
    """The setup command failed on a commit that changes files on which the setup depends."""

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
    """The contents of a commit message."""

    run: RunId
    subtask: SubtaskId
    attempt: int
    title: str
    body: str
    worker: str
    model: str | None
    unfinished: bool = False
    """Whether it comes from a failed attempt. It is kept, but never counts as finished work."""


class Lease(Protocol):
    """A worktree on loan to one attempt or check."""

    @property
    def workspace(self) -> Workspace: ...

    async def check(self, criterion: Criterion, *, lands: bool = False) -> CheckRun:
        """Run a check in a separate sandbox. The files it writes stay, so each verdict requires a new lease.

        With `lands`, finished work in the merge queue waits for it, so it runs before other checks.
        """
        ...

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        """Scan the changes, commit and pin them. Called after all commands have ended."""
        ...


OpenLease = Callable[[Sha], AbstractAsyncContextManager[Lease]]
"""Opens a clean worktree at a commit, as a block. Raises `EffectError`."""


class Worktrees(Protocol):
    def lease(self, base: Sha, /) -> AbstractAsyncContextManager[Lease]:
        """See `OpenLease`."""
        ...

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        """The change that an attempt pinned before a crash, if any."""
        ...

    def finished_setups(self) -> tuple[SetupRun, ...]:
        """The runs of the setup command since the last call."""
        ...

    async def put_back(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        """A copy of a commit with some paths restored from `base`, for checks. It never lands."""
        ...


class Commits(Protocol):
    """The commits made in worktrees, and their bases."""

    def at(self, commit: Sha) -> PlannerRepository: ...

    async def tree(self, commit: Sha) -> Sha: ...

    async def diff(self, base: Sha, commit: Sha) -> str: ...


@dataclass(frozen=True, slots=True)
class Merged:
    """Candidates on top of a tip, one commit each. The branch is unchanged."""

    tip: Sha
    landed: tuple[Member, ...]
    conflicts: tuple[tuple[Member, Failure], ...]


class Integrator(Protocol):
    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged: ...

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        """Move the integration branch from `old` to `new`. Return False if it is not at `old`."""
        ...

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        """The commits on the integration branch from `old` to its tip, oldest first, read from their trailers."""
        ...


Publish = Callable[[RunId, Sha], Awaitable[str | None]]
"""Moves the user's result branch forward to a tip. Returns the reason if that is impossible."""


@dataclass(frozen=True, slots=True)
class NamedCommits:
    """The commits named in the journal of a resumed run."""

    run: RunId
    base: Sha
    tip: Sha
    attempts: Mapping[tuple[SubtaskId, int], Sha] = field(default_factory=dict)
    """Finished work."""
    kept: Mapping[tuple[SubtaskId, int], Sha] = field(default_factory=dict)
    """Unfinished work of failed attempts."""
    landed: tuple[Sha, ...] = ()
    """Commits of the integration branch whose tree passed, so that the branch can be set to any of them."""
    underway: frozenset[tuple[SubtaskId, int]] = frozenset()
    """Attempts that may have landed without the journal's knowledge."""
    published: Sha | None = None
    written_since: float | None = None
    """If the last engine was killed: data written after this time may not be on disk."""


@dataclass(frozen=True, slots=True)
class RecoveredCommits:
    """The commits that exist after recovery."""

    tip: Sha
    """The tip of the integration branch, without commits that its trailers do not explain."""
    below: frozenset[Sha] = frozenset()
    """The commits on the integration branch, if it was set back."""
    gone: frozenset[Sha] = frozenset()
    shown: bool = True
    """Whether the user's repository has the result branch, as far as it was published."""


Recover = Callable[[NamedCommits], Awaitable[RecoveredCommits]]
"""Restores commits as far as possible. Returns those that exist."""
