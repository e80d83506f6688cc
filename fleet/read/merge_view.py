"""What became of a branch of the user's that took the result of a run."""

from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import RunId, Sha, SubtaskId

How = Literal["nothing", "forwarded", "landed again"]


@dataclass(frozen=True, slots=True)
class Redone:
    """A commit of a result that did not fit on the branch, and what took its place."""

    subtask: SubtaskId
    """The subtask that was done again, or a new one."""
    commit: Sha
    """Its commit on the branch."""
    why: str
    """Why the commit of the result did not fit."""


@dataclass(frozen=True, slots=True)
class MergeView:
    """How a branch took the result of a run."""

    run: RunId
    """The run whose result it is."""
    branch: str
    """The branch."""
    commit: Sha
    """Where the branch is now."""
    commits: int
    """How many commits it got."""
    how: How
    """`nothing`: it had them all; `forwarded`: the commits of the run; `landed again`: copies, tested on top of it."""
    untested: int = 0
    """How many of them were tested only together with later ones: set `landing.every_commit` to have each tested."""
    relanding: RunId | None = None
    """The run that landed them again on what the branch had; null if there was no need."""
    redone: tuple[Redone, ...] = ()
    """The commits that did not fit and were done again: nobody but the checks has looked at them yet."""
    cost_dollars: float | None = None
    """What doing them again cost; null if nothing was landed again."""
