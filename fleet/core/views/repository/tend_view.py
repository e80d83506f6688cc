"""How far the fleet is with what CI and reviewers ask of a pull request."""

from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import RunId, Sha

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
