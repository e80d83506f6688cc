"""Lanes: one task for each running effect, and the handling of internal errors in the loop.

The cost of a step depends on the changes, not on the number of running effects.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from anyio import CancelScope
from anyio.abc import TaskGroup

from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import Fact, RunEnded
from fleet.core.history.evolve import Step, applied
from fleet.core.policy.decide import RULES, Rule
from fleet.core.policy.effects import Command, TestBatch, may_start, required_effect, run_effects
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Subtasks, SubtaskState
from fleet.engine.internal_errors import unwrapped, warning_about
from fleet.errors import FleetError
from fleet.ports.journal import Clock

Perform = Callable[[Command], Awaitable[None]]


# ---- bugs ------------------------------------------------------------------------------------------------------------
# Internal errors in the loop itself: in a policy rule, in the choice of effects, in a command that fails silently.
#
# A step that raises is skipped and reported to the operator once, and all other steps continue. A rule is skipped until
# the state changes, which the report itself causes. A command is set aside. If no work is left, the run ends.


Given = ParamSpec("Given")
Asked = TypeVar("Asked")


@dataclass(slots=True)
class Bugs:
    """Internal errors that an engine has met."""

    clock: Clock
    rules: Sequence[Rule] = RULES
    _aside: set[Command] = field(default_factory=set)
    """Commands that ended without recording a result, after all retries."""
    _broken: dict[Rule, RunState] = field(default_factory=dict)
    """The rules that raised, each with the state in which it did so last."""
    _unreported: list[Fact] = field(default_factory=list)
    _reported: dict[tuple[str, type[Exception]], str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are any, all of them recorded: a record is a new state, in which skipped rules run again."""
        return bool(self._reported) and not self._unreported

    def report(self, step: str, error: Exception) -> None:
        """Warn the operator about an interrupted step, with the traceback."""
        key = (step, type(unwrapped(error)))  # its text may differ each time: an address, a time
        if key not in self._reported:
            warning = warning_about(error, f"internal error while fleet {step}", self.clock.now())
            self._reported[key] = warning.text
            self._unreported.append(warning)

    def taken(self) -> Sequence[Fact]:
        """The warnings that were not recorded yet."""
        taken, self._unreported = self._unreported, []
        return taken

    def guard(self, step: str, ask: Callable[Given, Asked], *args: Given.args, **kwargs: Given.kwargs) -> Asked | None:
        """Return the result of a function, or None if it raises."""
        try:
            return ask(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the loop outlives any one question that it asks
            self.report(step, error)
            return None

    def stopped(self, command: Command, error: Exception) -> None:
        """Set a command aside that ended without recording a result."""
        self._aside.add(command)
        self.report(f"carried out {command}", error)

    def is_aside(self, command: Command) -> bool:
        return command in self._aside

    def decide(self, state: RunState, now: float) -> list[Step]:
        """Yield the decisions for a state, each with the following state. A rule that raises is skipped."""
        new = list[Step]()
        while not state.ended:
            decided = next((found for rule in self.rules if (found := self._ask(rule, state, now))), None)
            if decided is None:
                break
            new += decided
            _, state = decided[-1]
        return new

    def _ask(self, rule: Rule, state: RunState, now: float) -> list[Step] | None:
        if self._broken.get(rule) is state:  # it would raise again
            return None
        try:
            return applied(state, rule(state, now))
        except Exception as error:  # noqa: BLE001 - the other rules still decide
            self._broken[rule] = state
            self.report(f"decided ({rule.__name__.strip('_')})", error)
            return None

    def ending(self, state: RunState) -> Fact:
        """Return the end of a run if internal errors have left no work to do."""
        return RunEnded(at=self.clock.now(), ending="partial" if state.commits else "failed", why=self.why(state))

    def why(self, state: RunState) -> str:
        what = "; ".join(self._reported.values())
        return f"{what}. No other work is left. Please report it, then continue with `fleet resume {state.run}`"


# ---- lanes -----------------------------------------------------------------------------------------------------------


class Lanes:
    """The tasks of one engine."""

    def __init__(self, perform: Perform, bugs: Bugs, on_end: Callable[[], None]) -> None:
        self._perform = perform
        self._bugs = bugs
        self._on_end = on_end
        self._running: dict[Command, CancelScope] = {}
        self._wanted: set[Command] = set()
        self._missing: dict[Command, None] = {}
        """Wanted and not running, the oldest first."""
        self._unwanted: set[Command] = set()
        """Running and not wanted any more."""
        self._subtasks = Subtasks()
        self._of_subtasks: dict[SubtaskId, Command] = {}
        self._of_run: dict[Command, None] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def reconcile(self, state: RunState, now: float, tasks: TaskGroup) -> None:
        """Start missing effects, and stop unwanted ones."""
        for command in self.startable(state, now):
            del self._missing[command]
            self._running[command] = CancelScope()
            tasks.start_soon(self._lane, command, name=str(command))
        stops_all = state.cancelled or state.undoing is not None
        for command in self._unwanted:
            if stops_all or isinstance(command, TestBatch):  # another batch has answered for it
                self._running[command].cancel()

    def startable(self, state: RunState, now: float) -> list[Command]:
        """Return the commands that should run, are not running yet, and are not set aside."""
        changed = self._bugs.guard("chose the next steps of subtasks", self._changed, state)
        for subtask in changed or ():
            command = self._bugs.guard(f"chose the next step of {subtask.id}", required_effect, subtask)
            self._swap(self._of_subtasks.pop(subtask.id, None), command)
            if command is not None:
                self._of_subtasks[subtask.id] = command
        if changed is not None:
            self._subtasks = state.subtasks
        of_run = self._bugs.guard("chose the next step of the run", lambda: dict.fromkeys(run_effects(state, now)))
        if of_run is not None:
            for command in self._of_run.keys() - of_run.keys():
                self._swap(command, None)
            for command in of_run:
                self._swap(None, command)
            self._of_run = of_run
        return [command for command in self._missing if self._may_start(state, command)]

    def _changed(self, state: RunState) -> list[SubtaskState]:
        """The subtasks that are not as they were at the last step."""
        return list(state.subtasks.changed_since(self._subtasks))

    def _swap(self, before: Command | None, after: Command | None) -> None:
        """Want one command instead of another."""
        if before is not None and before != after:
            self._wanted.discard(before)
            self._missing.pop(before, None)
            if before in self._running:
                self._unwanted.add(before)
        if after is not None and after not in self._wanted:
            self._wanted.add(after)
            self._unwanted.discard(after)
            if after not in self._running:
                self._missing[after] = None

    def _may_start(self, state: RunState, command: Command) -> bool:
        if self._bugs.is_aside(command):
            return False
        return bool(self._bugs.guard(f"chose whether to start {command}", may_start, state, command))

    async def _lane(self, command: Command) -> None:
        try:
            with self._running[command]:
                await self._perform(command)
        except FleetError:  # the disk is full
            raise
        except Exception as error:  # noqa: BLE001 - the loop outlives any one command
            self._bugs.stopped(command, error)
        finally:
            del self._running[command]
            self._unwanted.discard(command)
            if command in self._wanted:
                self._missing[command] = None
            self._on_end()
