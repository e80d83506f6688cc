"""Effects: what should be running, given what is true. The engine starts missing effects and stops unwanted ones.

Each is identified by its subject, so that the same effect is wanted before and after a crash.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import RunState
from fleet.core.state.status import conversations, planning_of
from fleet.core.state.subtasks import SubtaskState


@dataclass(frozen=True, slots=True)
class CheckBase:
    base: Sha


@dataclass(frozen=True, slots=True)
class CallPlanner:
    call: int
    area: SubtaskId | None = None


@dataclass(frozen=True, slots=True)
class RunAttempt:
    subtask: SubtaskId
    number: int


@dataclass(frozen=True, slots=True)
class VerifyAttempt:
    subtask: SubtaskId
    number: int


@dataclass(frozen=True, slots=True)
class TestBatch:
    __test__ = False  # pytest: not a test class
    number: int


@dataclass(frozen=True, slots=True)
class Publish:
    tip: Sha


Command = CheckBase | CallPlanner | RunAttempt | VerifyAttempt | TestBatch | Publish


def effects(state: RunState, now: float) -> tuple[Command, ...]:
    """Everything that should be running now."""
    attempts = (required_effect(subtask) for subtask, _ in state.underway()) if not state.ended else ()
    return (*run_effects(state, now), *(effect for effect in attempts if effect is not None))


def run_effects(state: RunState, now: float) -> Iterator[Command]:
    """Return the few effects that do not belong to a single subtask."""
    if state.ended:
        return
    if base_unknown(state) and not state.cancelled:
        yield CheckBase(state.base)
    open_calls = ((planning_of(state, area).open, area) for area in conversations(state))
    yield from (CallPlanner(call, area) for call, area in open_calls if call is not None)
    yield from (TestBatch(batch.number) for batch in state.landing.open_batches)
    if unpublished(state) and state.publish_not_before <= now and state.tip != state.publish_aside:
        yield Publish(state.tip)


def required_effect(subtask: SubtaskState) -> Command | None:
    """Return the effect that should run for a subtask of an unfinished run."""
    attempt = subtask.current
    if attempt is None or (attempt.commit is None and attempt.worker == PLANNER):
        return None  # the planner of an area is called instead
    if attempt.commit is None:
        return RunAttempt(subtask.id, attempt.number)
    return VerifyAttempt(subtask.id, attempt.number) if not attempt.verified else None


def may_start(state: RunState, command: Command) -> bool:
    """Return whether a command may start now. While a run is drained, commands that call a model may not.

    A command that would only wait for a batch of reviews may not start either.
    """
    if isinstance(command, VerifyAttempt):
        return not (state.draining and (command.subtask, command.number) in state.pending_reviews)
    return not (state.draining and isinstance(command, RunAttempt | CallPlanner))


def base_unknown(state: RunState) -> bool:
    """Return whether work must wait until the base is checked."""
    return state.policy.check_base and not state.base_checked


def unpublished(state: RunState) -> bool:
    """Whether something landed that is not on the result branch yet."""
    return state.policy.publishes and state.tip != (state.published or state.base)
