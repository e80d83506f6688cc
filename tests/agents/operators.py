"""An operator for tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from fleet.core.facts.fact_parts import Instruction


@dataclass
class FakeOperator:
    """Says what a test wants to be said."""

    given: list[Instruction] = field(default_factory=list)
    was_read: int = 0
    """How many of the instructions were in a request."""
    awaited: int = 0
    """After how many instructions someone waits for another."""
    _told: anyio.Event = field(default_factory=anyio.Event)

    def tell(self, words: str, *, interrupt: bool = False) -> None:
        self.given.append(Instruction(words, "ada", 1.0, interrupt))
        self._told.set()
        self._told = anyio.Event()

    @property
    def has_news(self) -> bool:
        return bool(self.told(self.was_read))

    @property
    def interrupts(self) -> bool:
        return any(each.interrupt for each in self.told(self.was_read))

    async def read(self) -> Sequence[Instruction]:
        unread = self.told(self.was_read)
        self.was_read = len(self.given)
        return unread

    def told(self, since: int = 0) -> Sequence[Instruction]:
        return self.given[since:]

    async def wait_told(self, count: int) -> None:
        self.awaited = count
        while not self.told(count):
            await self._told.wait()

    async def mark_read(self, count: int) -> None:
        self.was_read = count

    async def wait_news(self) -> None:
        await self.wait_told(self.was_read)

    async def wait_interrupt(self) -> None:
        while not self.interrupts:
            await self._told.wait()
