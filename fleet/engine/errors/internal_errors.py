"""Errors of ours: how an exception becomes a failure, which steps are tried once more, and advice that may be left out.

An exception here is a bug of fleet, never a worker's failure: it uses up no attempt and calls no model again. A step of
ours is tried twice, then what it is about is set aside.
"""

import errno
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from anyio import sleep

from fleet.core.state import facts as f
from fleet.core.state.failures import internal_failure
from fleet.errors import FleetError
from fleet.ports.agents import DrainingError
from fleet.ports.journal import Clock, Recorder
from fleet.ports.nodes import NodeFailedError
from fleet.ports.worktrees import EffectError

TRIES = 4  # at a step that fails because of the machine
TRIES_AFTER_BUG = 2
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})  # descriptors, memory, processes
NO_THREAD = "can't start new thread"
TRACE = 4_000  # characters of a bug's trace
TRY_AGAIN_S = 0.5
Result = TypeVar("Result")


class DiskFullError(FleetError):
    """Nothing can be written. No subtask is to blame, and trying again does not help."""


def unwrapped(error: Exception) -> Exception:
    """The exception that a group is about: an unexpected one, if it has any."""
    while isinstance(error, ExceptionGroup):
        unexpected = [each for each in error.exceptions if not isinstance(each, EffectError | FleetError)]
        error = (unexpected or error.exceptions)[0]
    return error


def failure_of(error: Exception, step: str) -> f.Failure:
    """A failed effect, a machine out of resources, or a bug of ours in a step such as `checked the base`."""
    trace = "".join(traceback.format_exception(error))[-TRACE:]
    error = unwrapped(error)
    if isinstance(error, EffectError):
        return error.failure
    shown = f"{type(error).__name__}: {error}"
    if is_scarce(error) or isinstance(error, FleetError):
        return f.Failure(kind="infrastructure", summary=shown, evidence=trace)
    return internal_failure(step, shown, trace)


def is_scarce(error: Exception) -> bool:
    """Whether the machine has no descriptors, processes, threads or memory left."""
    if isinstance(error, OSError):
        return error.errno in SCARCE
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and str(error) == NO_THREAD)


async def persist(
    step: Callable[[], Awaitable[Result]], name: str, *, check: Callable[[f.Failure], None] = lambda _: None
) -> Result:
    """Carry out a step that calls no model: once more after a bug, some more times if the machine is to blame.

    `check` raises if a failure of this machine makes another try useless.
    """
    number = 1
    while True:
        try:
            return await step()
        except Exception as error:
            failure = failure_of(error, name)
            limit = {"infrastructure": TRIES, "internal": TRIES_AFTER_BUG}.get(failure.kind, 1)
            if number >= limit or isinstance(unwrapped(error), DrainingError | DiskFullError):
                raise
            if not isinstance(unwrapped(error), NodeFailedError):
                check(failure)
        await sleep(TRY_AGAIN_S * 2**number if failure.kind == "infrastructure" else 0)
        number += 1


@dataclass(frozen=True, slots=True)
class Advice:
    """What only helps or informs: where it can't be made, it is left out, with one warning for the operator."""

    engine: Recorder
    clock: Clock
    _reported: set[tuple[str, type[Exception]]] = field(default_factory=set)

    async def take(self, what: str, make: Callable[[], Awaitable[Result]], *, without: Result) -> Result:
        """What `make` returns; `without` where it raises."""
        try:
            return await make()
        except Exception as error:  # noqa: BLE001 - advice can't fail what it is about
            self.leave_out(what, error)
            return without

    def take_now(self, what: str, make: Callable[[], Result], *, without: Result) -> Result:
        """The same for a function that waits for nothing."""
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - advice can't fail what it is about
            self.leave_out(what, error)
            return without

    def leave_out(self, what: str, error: Exception) -> None:
        """Warn the operator, with the trace, that something was left out."""
        text = f"left out because of an error: {what}: {type(unwrapped(error)).__name__}: {unwrapped(error)}"
        key = (what, type(unwrapped(error)))  # its text may differ each time
        if key in self._reported:
            return
        self._reported.add(key)
        trace = "".join(traceback.format_exception(error))[-TRACE:]
        self.engine.note(f.WarningNoted(at=self.clock.now(), text=text, evidence=trace))
