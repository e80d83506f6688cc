"""What the operator tells one attempt.

An attempt that was interrupted by a crash starts over with a conversation of its own, so it reads everything again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.state import facts as f
from fleet.core.state.subtask_state import Instruction
from fleet.ports.journal import Clock, Recorder
from fleet.ports.operator import HeardOperator


@dataclass(slots=True)
class AttemptOperator(HeardOperator):
    """Satisfies `Operator` for one life of an attempt."""

    engine: Recorder
    clock: Clock
    subtask: SubtaskId
    number: int
    _read: int = 0
    """How many of the subtask's instructions were read."""

    def told(self, since: int = 0) -> tuple[Instruction, ...]:
        return self.engine.state.subtasks[self.subtask].instructions[since:]

    async def wait_told(self, count: int) -> None:
        while not self.told(count):
            await self.engine.wait_instructed()

    async def mark_read(self, count: int) -> None:
        if self._read < count <= len(self.told()):
            self._read = count
            await self._record()

    async def read(self) -> Sequence[Instruction]:
        unread = self.unread
        if unread:
            self._read += len(unread)
            await self._record()
        return unread

    async def _record(self) -> None:
        at = self.clock.now()
        read = f.InstructionRead(at=at, subtask=self.subtask, number=self.number, count=self._read)
        await self.engine.record(read)
