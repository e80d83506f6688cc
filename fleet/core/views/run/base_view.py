"""How set-up and gate went on the base, before anything was done: why a run was refused, and what to do about it."""

from dataclasses import dataclass

from fleet.core.base.output import advice, key_lines
from fleet.core.state.facts import CheckRun, Failure, SetupRun
from fleet.core.state.state import RunState


@dataclass(frozen=True, slots=True)
class BaseView:
    """How set-up and gate went on the base of a run, before anything was done."""

    setup: SetupRun | None
    """The last run of the set-up command; null if there was none."""
    gate: tuple[CheckRun, ...]
    """The project's gate on the base; empty if there is none, or it could not be run."""
    failure: Failure | None
    """Why the gate could not be run."""
    causes: tuple[str, ...]
    """If something failed: the lines of its output that matter."""
    advice: tuple[str, ...]
    """What to do about them."""


def base_view(state: RunState) -> BaseView:
    causes = _causes(state)
    return BaseView(state.setup, state.base_checks, state.base_failure, causes, advice(causes))


def _causes(state: RunState) -> tuple[str, ...]:
    if state.base_failure is not None:
        if state.setup is not None and not state.setup.check.passed:
            return state.setup.check.causes
        return key_lines(f"{state.base_failure.summary}\n{state.base_failure.evidence}")
    red = [check for check in state.base_checks if not check.fine]
    return tuple(line for check in red for line in (check.causes or key_lines(check.output)))
