"""The views of `fleet pr` and `fleet tend`."""

from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import RunId, Sha, SubtaskId

Done = Literal["opened", "updated", "unchanged", "merged", "to open", "to update"]


@dataclass(frozen=True, slots=True)
class PullView:
    """A pull request, or a pull request that a dry run would open."""

    number: int | None
    """The number, or null before it is opened."""
    url: str
    """The URL, or empty before it is opened."""
    done: Done
    """The result of this call. `merged`: it was already merged. `to open` and `to update`: results of a dry run."""
    branch: str
    """The head branch on the remote."""
    into: str
    """The base branch."""
    commit: Sha
    """The last commit of the head branch."""
    commits: int
    """The number of commits."""
    area: SubtaskId | None
    """The area of the plan that it covers, or null for the full result and for commits outside all areas."""
    tested: bool
    """Whether the run tested the tree of the last commit. This is false if a stack has reordered commits."""
    title: str
    """The initial title. You can change it on the forge."""
    body: str
    """The generated text, with the marks around it."""


@dataclass(frozen=True, slots=True)
class PullsView:
    """The pull requests of a run."""

    run: RunId
    """Name of the run."""
    repository: str
    """The repository on the forge, as on the command line: `gh:OWNER/REPO`."""
    remote: str
    """The git remote for the branches."""
    dry_run: bool
    """Whether this is a dry run, which does not push or open anything."""
    pulls: tuple[PullView, ...]
    """The pull requests, from the bottom of a stack to its top."""
    commands: tuple[str, ...]
    """The shell commands that a dry run skipped. Texts are passed on standard input."""


# ---- tend view -------------------------------------------------------------------------------------------------------
# The state of a tended pull request.


TendStatus = Literal["working", "waiting", "quiet", "merged", "closed", "stopped", "gave_up", "interrupted"]


@dataclass(frozen=True, slots=True)
class TendRound:
    """One round of work on a pull request."""

    number: int
    """The number of the round, from 1."""
    run: RunId
    """The run that did the work."""
    threads: int
    """The number of threads that it replies to."""
    checks: tuple[str, ...]
    """The failed checks to fix."""
    pushed: Sha | None
    """The commit pushed to the head branch, or null if the round did not push."""
    why: str
    """Why landed work was not pushed, else empty."""
    is_done: bool
    """Whether all commits are pushed and all replies posted."""


@dataclass(frozen=True, slots=True)
class TendView:
    """A pull request and the work of `fleet tend` on it."""

    pull: str
    """The pull request, as on the command line: `gh:OWNER/REPO#12`."""
    url: str
    """The URL of its page."""
    run: RunId
    """The run whose result it proposes."""
    status: TendStatus
    """`quiet`: no open work. `waiting`: checks are running. `working`: a round is done, and more work may be open."""
    why: str
    """Why fleet stopped or gave up, else empty."""
    head: Sha | None
    """The head commit that the other fields describe."""
    threads: int
    """The number of threads that wait for a reply."""
    failed: tuple[str, ...]
    """The checks that failed on the head commit."""
    rounds: tuple[TendRound, ...]
    """The rounds, the oldest first."""
    cost_dollars: float
    """The cost of all rounds."""
