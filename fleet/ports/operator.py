"""What the operator tells a worker while it works: the only words, besides its brief, that a worker is to obey."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anyio import sleep_forever

from fleet.core.facts.fact_parts import Instruction


class Operator(Protocol):
    """The operator, as one conversation hears them."""

    @property
    def interrupts(self) -> bool:
        """Whether an instruction that has not been read stops what runs."""
        ...

    @property
    def has_news(self) -> bool:
        """Whether an instruction has not been read."""
        ...

    async def read(self) -> Sequence[Instruction]:
        """The instructions that were not read yet. It is on record that the next request to the model holds them."""
        ...

    def told(self, since: int = 0) -> Sequence[Instruction]:
        """All instructions from a number on, read or not: for those who pass them on."""
        ...

    async def wait_told(self, count: int) -> None:
        """Return once there are more instructions than this."""
        ...

    async def mark_read(self, count: int) -> None:
        """Someone else has read so many of the instructions: it is on record."""
        ...

    async def wait_news(self) -> None:
        """Return once an instruction has not been read."""
        ...

    async def wait_interrupt(self) -> None:
        """Return once an instruction that was not read stops what runs."""
        ...


class HeardOperator(ABC):
    """What has not been read of instructions, for an operator who knows all of them and how many were read."""

    __slots__ = ()
    _read: int

    @abstractmethod
    def told(self, since: int = 0) -> Sequence[Instruction]: ...

    @abstractmethod
    async def wait_told(self, count: int) -> None: ...

    @property
    def unread(self) -> Sequence[Instruction]:
        return self.told(self._read)

    @property
    def has_news(self) -> bool:
        return bool(self.unread)

    @property
    def interrupts(self) -> bool:
        return any(each.interrupt for each in self.unread)

    async def wait_news(self) -> None:
        while not self.has_news:
            await self.wait_told(len(self.told()))

    async def wait_interrupt(self) -> None:
        while not self.interrupts:
            await self.wait_told(len(self.told()))


class SilentOperator:
    """An operator without anything to say."""

    interrupts = False
    has_news = False

    async def read(self) -> Sequence[Instruction]:
        return ()

    def told(self, since: int = 0) -> Sequence[Instruction]:
        del since
        return ()

    async def wait_told(self, count: int) -> None:
        del count
        await sleep_forever()

    async def mark_read(self, count: int) -> None:
        del count

    async def wait_news(self) -> None:
        await sleep_forever()

    async def wait_interrupt(self) -> None:
        await sleep_forever()


@dataclass(frozen=True, slots=True)
class GivenOperator(SilentOperator):
    """What was told before an order was given, as the order carries it."""

    given: Sequence[Instruction]

    def told(self, since: int = 0) -> Sequence[Instruction]:
        return self.given[since:]


SILENT = SilentOperator()
