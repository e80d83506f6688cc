"""Lanes: a task for each effect that should be running. A step costs what changed, however much is running."""

from collections.abc import Awaitable, Callable

from anyio import CancelScope
from anyio.abc import TaskGroup

from fleet.core.base.ids import SubtaskId
from fleet.core.policy.effects import Command, TestBatch, effect_of, may_start, run_effects
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Subtasks, SubtaskState
from fleet.engine.internal_errors import Bugs
from fleet.errors import FleetError

Perform = Callable[[Command], Awaitable[None]]


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
        """Start what is missing, and stop what must not go on."""
        for command in self.startable(state, now):
            del self._missing[command]
            self._running[command] = CancelScope()
            tasks.start_soon(self._lane, command, name=str(command))
        stops_all = state.cancelled or state.undoing is not None
        for command in self._unwanted:
            if stops_all or isinstance(command, TestBatch):  # another batch has answered for it
                self._running[command].cancel()

    def startable(self, state: RunState, now: float) -> list[Command]:
        """What should be running and is not, may start, and is not set aside."""
        changed = self._bugs.guard("chose what to do for subtasks", self._changed, state)
        for subtask in changed or ():
            command = self._bugs.guard(f"chose what to do for {subtask.id}", effect_of, subtask)
            self._swap(self._of_subtasks.pop(subtask.id, None), command)
            if command is not None:
                self._of_subtasks[subtask.id] = command
        if changed is not None:
            self._subtasks = state.subtasks
        of_run = self._bugs.guard("chose what to do", lambda: dict.fromkeys(run_effects(state, now)))
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
        except FleetError:  # nothing can be written any more
            raise
        except Exception as error:  # noqa: BLE001 - the loop outlives any one command
            self._bugs.stopped(command, error)
        finally:
            del self._running[command]
            self._unwanted.discard(command)
            if command in self._wanted:
                self._missing[command] = None
            self._on_end()
