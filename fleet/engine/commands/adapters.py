"""The adapters of a run: planner, workers, worktrees and the rest. The composition root fills them in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.core.verdicts.reviews import NO_REVIEWS, ReviewRules
from fleet.engine.commands.checks import Gate
from fleet.engine.internal_errors import TRY_AGAIN_S
from fleet.ports.agents import Planner, Reviewer, Worker
from fleet.ports.journal import Clock
from fleet.ports.worktrees import Commits, Integrator, Publish, Worktrees


@dataclass(frozen=True, slots=True)
class Adapters:
    """Everything that the engine uses of the world."""

    planner: Planner
    workers: Mapping[str, Worker]
    descriptions: Mapping[str, str]
    """What each worker is for."""
    worktrees: Worktrees
    commits: Commits
    integrator: Integrator
    publish: Publish
    clock: Clock
    gate: Gate
    reviewer: Reviewer | None = None
    """None: no model may be called."""
    reviews: ReviewRules = NO_REVIEWS
    command_workers: frozenset[str] = frozenset()
    """Workers that are programs: their exit code is the result, and they need not change a file."""
    has_program: Callable[[str], bool] | None = None
    """Whether checks would find a program of this name; None if that is unknown."""
    disk_full: Callable[[str], str | None] = lambda _: None
    """What to do about a full disk, if the text of a failure means that; None otherwise."""
    again_s: float = TRY_AGAIN_S
    """The first pause before a step is tried again that failed because of the machine."""
