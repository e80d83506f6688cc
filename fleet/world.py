"""What a run is given: its planner, workers, worktrees and the rest, as ports. `app.py` makes one of adapters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.checking import Gate
from fleet.core.command_lines import Runs
from fleet.ports import Clock, Integrator, Planner, Worker, Worktrees


@dataclass(frozen=True, slots=True)
class World:
    """The adapters of a run."""

    planner: Planner
    workers: Mapping[str, Worker]
    descriptions: Mapping[str, str]
    worktrees: Worktrees
    integrator: Integrator
    clock: Clock
    gate: Gate
    steps: frozenset[str] = frozenset()
    """The workers that carry out steps of which no file needs to be left: programs, whose end says how it went."""
    runs: Runs | None = None
    """Whether there is a program of a name where checks run; None where nobody knows."""
    full: Callable[[str], str | None] = lambda _: None
    """Why nothing can be written any more, given how something failed; None where that is not why."""
