"""What the operator tells a worker while it works: the only words, besides its brief, that a worker is to obey."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anyio import sleep_forever

from fleet.core.state.subtask_state import Instruction


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

    async def wait_news(self) -> None:
        """Return once an instruction has not been read."""
        ...

    async def wait_interrupt(self) -> None:
        """Return once an instruction that was not read stops what runs."""
        ...


class SilentOperator:
    """An operator without anything to say."""

    interrupts = False
    has_news = False

    async def read(self) -> Sequence[Instruction]:
        return ()

    async def wait_news(self) -> None:
        await sleep_forever()

    async def wait_interrupt(self) -> None:
        await sleep_forever()


@dataclass(slots=True)
class GivenOperator:
    """An operator who said everything before the work began, as for a program on a node."""

    told: Sequence[Instruction]
    interrupts: bool = False

    @property
    def has_news(self) -> bool:
        return bool(self.told)

    async def read(self) -> Sequence[Instruction]:
        told, self.told = self.told, ()
        return told

    async def wait_news(self) -> None:
        if not self.told:
            await sleep_forever()

    async def wait_interrupt(self) -> None:
        await sleep_forever()


SILENT = SilentOperator()
