"""What the operator tells a worker while it works: the only words, besides its brief, that a worker is to obey."""

from collections.abc import Sequence
from dataclasses import dataclass

from anyio import sleep_forever

from fleet.core.facts.fact_parts import Instruction


class Operator:
    """The operator, as one conversation hears them. This one has nothing to say; subclasses know all instructions."""

    __slots__ = ()
    _read: int = 0
    """How many of the instructions were read."""

    def told(self, since: int = 0) -> Sequence[Instruction]:
        """All instructions from a number on, read or not: for those who pass them on."""
        del since
        return ()

    async def wait_told(self, count: int) -> None:
        """Return once there are more instructions than this."""
        del count
        await sleep_forever()

    async def mark_read(self, count: int) -> None:
        """Someone else has read so many of the instructions: it is on record."""

    async def read(self) -> Sequence[Instruction]:
        """The instructions that were not read yet. It is on record that the next request to the model holds them."""
        return ()

    @property
    def unread(self) -> Sequence[Instruction]:
        return self.told(self._read)

    @property
    def has_news(self) -> bool:
        """Whether an instruction has not been read."""
        return bool(self.unread)

    @property
    def interrupts(self) -> bool:
        """Whether an instruction that has not been read stops what runs."""
        return any(each.interrupt for each in self.unread)

    async def wait_interrupt(self) -> None:
        """Return once an instruction that was not read stops what runs."""
        while not self.interrupts:
            await self.wait_told(len(self.told()))


@dataclass(frozen=True, slots=True)
class GivenOperator(Operator):
    """What was told before an order was given, as the order carries it: for whoever passes it on."""

    given: Sequence[Instruction]

    def told(self, since: int = 0) -> Sequence[Instruction]:
        return self.given[since:]

    @property
    def unread(self) -> Sequence[Instruction]:
        return ()


SILENT = Operator()
