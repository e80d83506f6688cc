"""An operator for tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from fleet.core.facts.fact_parts import Instruction
from fleet.ports.operator import Operator


@dataclass
class FakeOperator(Operator):
    """Says what a test wants to be said."""

    given: list[Instruction] = field(default_factory=list)
    _read: int = 0
    """How many of the instructions were in a request."""
    awaited: int = 0
    """After how many instructions someone waits for another."""
    _told: anyio.Event = field(default_factory=anyio.Event)

    def tell(self, words: str, *, interrupt: bool = False) -> None:
        self.given.append(Instruction(words, "ada", 1.0, interrupt))
        self._told.set()
        self._told = anyio.Event()

    @property
    def was_read(self) -> int:
        return self._read

    async def read(self) -> Sequence[Instruction]:
        unread = self.unread
        self._read = len(self.given)
        return unread

    def told(self, since: int = 0) -> Sequence[Instruction]:
        return self.given[since:]

    async def wait_told(self, count: int) -> None:
        self.awaited = count
        while not self.told(count):
            await self._told.wait()

    async def mark_read(self, count: int) -> None:
        self._read = count
