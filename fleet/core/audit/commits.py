"""A result branch as git has it. Git makes these values and knows nothing of what they are compared with."""

from dataclasses import dataclass

from fleet.core.base.ids import RunId, Sha, SubtaskId


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as git has it, and the values of its trailers."""

    id: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    subject: str
    run: RunId | None
    subtask: SubtaskId | None
    attempt: int | None
    worker: str | None
    model: str | None
    sound: bool = True
    """Whether its content matches its id."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The result branch as git has it: the commits above the base, oldest first."""

    tip: Sha | None
    """None if the branch does not exist."""
    commits: tuple[Commit, ...]
    has_base: bool = True
