"""Orders on other machines: the protocol to run them, their reports, and their errors."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import CheckRun, Failure, Report, SetupRun
from fleet.ports.agents import Sign
from fleet.ports.orders import Order, Progress


class NodeLostError(Exception):
    """A node is gone, or was silent until its lease expired. Its orders go to other machines."""


class UnknownOrderError(Exception):
    """A host does not have an order with this key, because it was acknowledged or its process was killed."""


@dataclass(frozen=True, slots=True)
class AttemptDone:
    """The report of an attempt. Its commit is sent as a pack, because nodes don't share a disk."""

    outcome: Report | Failure
    commit: Sha | None = None
    refused: Failure | None = None
    """Why the commit is missing."""
    pack: bytes = field(default=b"", repr=False)
    transcript: bytes = field(default=b"", repr=False)
    """The conversation or the program's output, in the format of `fleet logs`."""


@dataclass(frozen=True, slots=True)
class ChecksDone:
    """The report of checks, in the order of the criteria."""

    runs: tuple[CheckRun, ...]
    setups: tuple[SetupRun, ...] = ()
    """The setup runs since the previous report."""
    logs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The full outputs, by their names on the node."""


@dataclass(frozen=True, slots=True)
class OrderFailed:
    """The report of an order that could not be run."""

    failure: Failure
    setup: CheckRun | None = None
    """The setup command, if it failed on the commit."""
    logs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


OrderReport = AttemptDone | ChecksDone | OrderFailed
NumberedEvent = Progress | OrderReport
OrderEvent = NumberedEvent | Sign


class NodeHost(Protocol):
    """A machine that works for a run. All methods can be repeated: each order has a key and runs once."""

    async def start(self, key: str, order: Order) -> None:
        """Start an order if it has not started yet."""
        ...

    def follow(self, key: str, since: int = 0) -> AsyncGenerator[OrderEvent, None]:
        """Follow its events from a number up to its report. Raises `UnknownOrderError` if the host does not have it.

        Signs are not numbered. Each follower gets the signs that are still unanswered.
        """
        ...

    async def answer(self, key: str, number: int, at: int, part: bytes, *, last: bool) -> None:
        """Send a part of the answer to a call of the order."""
        ...

    async def instruct(self, key: str, number: int, instruction: Instruction) -> None:
        """Send an instruction to the attempt, by number."""
        ...

    async def cancel(self, key: str) -> None:
        """Cancel an order. Its report states that it was canceled."""
        ...

    async def acknowledge(self, key: str) -> None:
        """Confirm the report of an order, so that the host can delete it."""
        ...


class NodeLiedError(Exception):
    """A node sent data that an honest node can't send."""
