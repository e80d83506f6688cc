"""The operator's instructions to a running worker. Apart from its brief, a worker only obeys these."""

from collections.abc import Sequence
from dataclasses import dataclass

from anyio import sleep_forever

from fleet.core.facts.fact_parts import Instruction


class Operator:
    """The operator's instructions to one conversation. This class has none. Subclasses provide them."""

    __slots__ = ()
    _read: int = 0
    """The number of instructions read."""

    def told(self, since: int = 0) -> Sequence[Instruction]:
        """All instructions from a number on, read or not, to forward them."""
        del since
        return ()

    async def wait_told(self, count: int) -> None:
        """Return once there are more instructions than `count`."""
        del count
        await sleep_forever()

    async def mark_read(self, count: int) -> None:
        """Record the number of instructions that another process has read."""

    async def read(self) -> Sequence[Instruction]:
        """Return the unread instructions and record that the next request to the model contains them."""
        return ()

    @property
    def unread(self) -> Sequence[Instruction]:
        return self.told(self._read)

    @property
    def has_news(self) -> bool:
        """Whether there is an unread instruction."""
        return bool(self.unread)

    @property
    def interrupts(self) -> bool:
        """Whether an unread instruction interrupts the current command."""
        return any(each.interrupt for each in self.unread)

    async def wait_interrupt(self) -> None:
        """Return once an unread instruction interrupts the current command."""
        while not self.interrupts:
            await self.wait_told(len(self.told()))


@dataclass(frozen=True, slots=True)
class GivenOperator(Operator):
    """The instructions included in an order, to forward them."""

    given: Sequence[Instruction]

    def told(self, since: int = 0) -> Sequence[Instruction]:
        return self.given[since:]

    @property
    def unread(self) -> Sequence[Instruction]:
        return ()


SILENT = Operator()
