"""Internal errors: converts exceptions to failures, limits retries, and skips optional steps.

An exception here is a bug in fleet and never a worker's failure. It does not count as an attempt and does not repeat
model calls. A step is tried twice, then the affected work is set aside.
"""

import errno
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import sleep

from fleet.core.facts import facts as f
from fleet.core.facts.failures import internal_failure
from fleet.errors import FleetError
from fleet.ports.agents import DrainingError
from fleet.ports.journal import Clock, Recorder
from fleet.ports.orders import NodeFailedError
from fleet.ports.worktrees import EffectError

TRIES = 4  # at a step that fails because of the machine
TRIES_AFTER_BUG = 2
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})  # descriptors, memory, processes
NO_THREAD = "can't start new thread"
TRACE = 4_000  # characters of a bug's trace
TRY_AGAIN_S = 0.5  # first pause after a failure of the machine, doubled for each further one
Result = TypeVar("Result")


class DiskFullError(FleetError):
    """The disk is full. No subtask is to blame, and a retry would not help."""


def unwrapped(error: Exception) -> Exception:
    """The exception that a group is about: an unexpected one, if it has any."""
    while isinstance(error, ExceptionGroup):
        unexpected = [each for each in error.exceptions if not isinstance(each, EffectError | FleetError)]
        error = (unexpected or error.exceptions)[0]
    return error


def failure_of(error: Exception, step: str) -> f.Failure:
    """Return the failure for an exception: a failed effect, a machine out of resources, or a bug in a step."""
    trace, shown = _trace(error), _shown(error)
    error = unwrapped(error)
    if isinstance(error, EffectError):
        return error.failure
    if is_scarce(error) or isinstance(error, FleetError):
        return f.Failure(kind="infrastructure", summary=shown, evidence=trace)
    return internal_failure(step, shown, trace)


def warning_about(error: Exception, what: str, now: float) -> f.WarningNoted:
    """Return a warning about an error, with its traceback."""
    return f.WarningNoted(at=now, text=f"{what}: {_shown(error)}", evidence=_trace(error))


def _shown(error: Exception) -> str:
    error = unwrapped(error)
    return f"{type(error).__name__}: {error}"


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))[-TRACE:]


def is_scarce(error: Exception) -> bool:
    """Return whether the machine is out of descriptors, processes, threads or memory."""
    if isinstance(error, OSError):
        return error.errno in SCARCE
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and str(error) == NO_THREAD)


def tries_after(failure: f.Failure) -> int:
    """Return the total tries for a step without model calls: two after a bug, more for a machine problem."""
    return {"infrastructure": TRIES, "internal": TRIES_AFTER_BUG}.get(failure.kind, 1)


async def persist(
    step: Callable[[], Awaitable[Result]],
    name: str,
    *,
    tries: Callable[[f.Failure], int] = tries_after,
    check: Callable[[f.Failure], None] = lambda _: None,
    again_s: float = TRY_AGAIN_S,
) -> Result:
    """Carry out a step, with retries if they may help. Raises the last error.

    `check` raises if a failure of this machine makes another try useless.
    """
    number = 1
    while True:
        try:
            return await step()
        except Exception as error:
            cause = unwrapped(error)
            if isinstance(cause, DrainingError | DiskFullError):
                raise cause from None
            failure = failure_of(error, name)
            if not isinstance(cause, NodeFailedError):
                check(failure)
            if number >= tries(failure):
                raise
        await sleep(again_s * 2**number if failure.kind == "infrastructure" else 0)
        number += 1


@dataclass(frozen=True, slots=True)
class Advice:
    """Optional steps that inform or help. If one fails, it is skipped with a single warning."""

    engine: Recorder
    clock: Clock
    _reported: set[tuple[str, type[Exception]]] = field(default_factory=set)

    async def take(self, what: str, make: Callable[[], Awaitable[Result]], *, without: Result) -> Result:
        """Return the result of `make`, or `without` if it raises."""
        try:
            return await make()
        except Exception as error:  # noqa: BLE001 - advice can't fail what it is about
            self.leave_out(what, error)
            return without

    def take_now(self, what: str, make: Callable[[], Result], *, without: Result) -> Result:
        """Return the result of a synchronous `make`, or `without` if it raises."""
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - advice can't fail what it is about
            self.leave_out(what, error)
            return without

    def leave_out(self, what: str, error: Exception) -> None:
        """Warn the operator, with the trace, that something was left out."""
        key = (what, type(unwrapped(error)))  # its text may differ each time
        if key not in self._reported:
            self._reported.add(key)
            self.engine.note(warning_about(error, f"left out because of an error: {what}", self.clock.now()))
