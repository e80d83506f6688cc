"""Effects: what should be going on, given what is true. The engine starts what is missing and stops what is not wanted.

Each is named by what it is about, so that the same effect is wanted before and after a crash.
"""

from dataclasses import dataclass

from fleet.core.areas import conversations, planning_of
from fleet.core.ids import Sha, SubtaskId
from fleet.core.plan import PLANNER
from fleet.core.state import RunState


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
    """Everything that should be going on now."""
    if state.ended:
        return ()
    wanted: list[Command] = []
    if base_unknown(state) and not state.cancelled:
        wanted.append(CheckBase(state.base))
    open_calls = ((planning_of(state, area).open, area) for area in conversations(state))
    wanted += (CallPlanner(call, area) for call, area in open_calls if call is not None)
    for subtask, attempt in state.underway():
        if attempt.commit is None and attempt.worker == PLANNER:
            continue  # its planner is called, and what it plans is worked on
        if attempt.commit is None:
            wanted.append(RunAttempt(subtask.id, attempt.number))
        elif not attempt.verified:
            wanted.append(VerifyAttempt(subtask.id, attempt.number))
    wanted += (TestBatch(probe.number) for probe in state.landing.probes)
    if unpublished(state) and state.publish_not_before <= now:
        wanted.append(Publish(state.tip))
    return tuple(wanted)


def begins(state: RunState, command: Command) -> bool:
    """Whether a command that is wanted may begin now: while a run is drained, nothing that calls a model does."""
    return not (state.draining and isinstance(command, RunAttempt | CallPlanner))


def base_unknown(state: RunState) -> bool:
    """Whether nothing may begin yet, because nobody knows whether the base is good."""
    return state.policy.check_base and not state.base_checked


def unpublished(state: RunState) -> bool:
    """Whether something landed that the user's result branch does not show yet."""
    return state.tip != (state.published or state.base)
