"""The adapters of a run: planner, workers, worktrees and the rest. The composition root fills them in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fleet.core.facts import facts as f
from fleet.core.plans.plan import Subtask
from fleet.engine.checks import Gate
from fleet.engine.internal_errors import TRY_AGAIN_S
from fleet.engine.reservations import RunBudget
from fleet.ports.agents import Planner, Worker
from fleet.ports.journal import Clock, Recorder
from fleet.ports.worktrees import Commits, Integrator, Publish, Worktrees


class ChangeReviews(Protocol):
    """The reviews of a run's changes by models."""

    async def judge(self, spec: Subtask, number: int) -> tuple[f.Failure | None, tuple[f.CheckRun, ...]]:
        """Return the failure of a change in its reviews, if any, and the results."""
        ...

    async def settled(self, spec: Subtask, number: int) -> tuple[f.FindingsSettled, ...]:
        """Return the outcomes of findings after an attempt has passed."""
        ...


OpenReviews = Callable[["Adapters", Recorder, RunBudget], ChangeReviews]


@dataclass(frozen=True, slots=True)
class Adapters:
    """Everything that the engine uses of the world."""

    planner: Planner
    workers: Mapping[str, Worker]
    descriptions: Mapping[str, str]
    """Purpose of each worker."""
    worktrees: Worktrees
    commits: Commits
    integrator: Integrator
    publish: Publish
    clock: Clock
    gate: Gate
    reviews: OpenReviews | None = None
    """Opens the reviews of a run when they are first needed. None: reviews are not available."""
    reviews_all: bool = False
    """Whether every change is reviewed, and not only on request of its plan."""
    command_workers: frozenset[str] = frozenset()
    """Workers that are programs: their exit code is the result, and they need not change a file."""
    has_program: Callable[[str], bool] | None = None
    """Whether checks can find a program of this name. None if unknown."""
    disk_full: Callable[[str], str | None] = lambda _: None
    """Advice about a full disk, if the text of a failure indicates one."""
    again_s: float = TRY_AGAIN_S
    """The first pause before a step is tried again that failed because of the machine."""
