"""What a verb answers that asks something of a run, or that fails."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request that was put into the inbox of a run."""

    run: str
    """The name of the run."""
    request: str
    """The kind of the request, as the fact that it becomes: `paused`, `cancel_requested` and so on."""
    message: str
    """What it does, for a person."""
    alive: bool
    """Whether a process runs the run; if not, `fleet resume` takes the request."""


@dataclass(frozen=True, slots=True)
class ReviewView:
    """An approval or a rejection of a plan."""

    run: str
    """The name of the run."""
    version: int
    """The version of the plan."""
    by: str
    """Who gave it."""
    done: bool
    """Whether it was put into the inbox of the run; false with `--dry-run`."""
    subtasks: tuple[str, ...]
    """The subtasks that it is about."""
    waiting: Mapping[str, tuple[str, ...]]
    """What waits for approval besides, each with the rules that stop it; with `--dry-run` all that waits."""
    plan_warnings: tuple[str, ...]
    """What the linter notes about the plan."""
    alive: bool
    """Whether a process runs the run; if not, `fleet resume` takes the request."""


@dataclass(frozen=True, slots=True)
class ErrorView:
    """Why a verb failed."""

    code: str
    """`usage` (exit code 2), `environment` (3), `interrupted` (130) or `internal` (70)."""
    message: str
    """What is wrong, and where."""
    hint: str
    """What to do next; empty where the message says all."""
    exit_code: int
    """The exit code of the program."""


@dataclass(frozen=True, slots=True)
class FailedView:
    """What a verb prints instead of its view, if it failed."""

    error: ErrorView
