"""What became of the pull requests of a run's result."""

from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import RunId, Sha, SubtaskId

Done = Literal["opened", "updated", "unchanged", "merged", "to open", "to update"]


@dataclass(frozen=True, slots=True)
class PullView:
    """A pull request, or one that would be opened."""

    number: int | None
    """Null before it is open."""
    url: str
    """Empty before it is open."""
    done: Done
    """What this call did; `merged`: a person merged it already; `to open`, `to update`: what it would do."""
    branch: str
    """The branch at the remote that it brings."""
    into: str
    """The branch that it goes into."""
    commit: Sha
    """Where its branch is."""
    commits: int
    """How many commits it has."""
    area: SubtaskId | None
    """The part of the plan that it is about; null: all of it."""
    tested: bool
    """Whether the run tested the tree of its last commit; commits that a stack puts in another order are not."""
    title: str
    """What it is called when it is opened; people may rename it."""
    body: str
    """Its text, between two marks."""


@dataclass(frozen=True, slots=True)
class PullsView:
    """The pull requests of a run."""

    run: RunId
    repository: str
    """Where they are, as on the command line: `gh:OWNER/REPO`."""
    remote: str
    """The name of the remote that branches were pushed to."""
    dry_run: bool
    """Whether nothing was pushed or opened."""
    pulls: tuple[PullView, ...]
    """From the bottom of a stack to its top."""
    commands: tuple[str, ...]
    """What a dry run would have called, as lines of a shell; texts go by standard input."""


# ---- tend view -------------------------------------------------------------------------------------------------------
# How far the fleet is with what CI and reviewers ask of a pull request.


TendStatus = Literal["working", "waiting", "quiet", "merged", "closed", "stopped", "gave_up", "interrupted"]


@dataclass(frozen=True, slots=True)
class TendRound:
    """One piece of work on a pull request."""

    number: int
    """Counted from 1."""
    run: RunId
    """The run that did the work."""
    threads: int
    """The threads that it answers."""
    checks: tuple[str, ...]
    """The failed checks that it was to fix."""
    pushed: Sha | None
    """The commit that it moved the head to; null if nothing of it was pushed."""
    why: str
    """Why nothing of it was pushed, where something had landed."""
    is_done: bool
    """Whether everything is pushed and answered."""


@dataclass(frozen=True, slots=True)
class TendView:
    """A pull request, and what the fleet has done about it."""

    pull: str
    """As on the command line: `gh:OWNER/REPO#12`."""
    url: str
    """Its page."""
    run: RunId
    """The run that it is of."""
    status: TendStatus
    """`quiet`: nothing is asked; `waiting`: checks are under way; `working`: a round is done, and more may wait."""
    why: str
    """Why it is left alone or given up; empty otherwise."""
    head: Sha | None
    """The commit that the rest is about."""
    threads: int
    """How many threads wait for an answer."""
    failed: tuple[str, ...]
    """The checks that failed at the head."""
    rounds: tuple[TendRound, ...]
    """What was done, the oldest first."""
    cost_dollars: float
    """What all rounds have cost."""
