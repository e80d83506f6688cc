"""Orders on other machines: how a machine is asked for them, what it reports, and how that goes wrong."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import CheckRun, Failure, Report, SetupRun
from fleet.ports.agents import Sign
from fleet.ports.orders import Order, Progress


class NodeLostError(Exception):
    """A node is gone, or was silent for so long that it has stopped by itself. What it was doing is done elsewhere."""


class UnknownOrderError(Exception):
    """A host holds no order of this key: it was acknowledged, or its process was killed."""


@dataclass(frozen=True, slots=True)
class AttemptDone:
    """The report of an attempt. What a node committed comes as a pack: no disk is shared."""

    outcome: Report | Failure
    commit: Sha | None = None
    refused: Failure | None = None
    """Why there is no commit."""
    pack: bytes = field(default=b"", repr=False)
    transcript: bytes = field(default=b"", repr=False)
    """The conversation or the program's output, as `fleet logs` reads it."""


@dataclass(frozen=True, slots=True)
class ChecksDone:
    """The report of checks, in the order of the criteria."""

    runs: tuple[CheckRun, ...]
    setups: tuple[SetupRun, ...] = ()
    """What the set-up command did there since the report before."""
    logs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Whole outputs, by the names that runs and set-ups have for them there."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """The report of an order that could not be carried out."""

    failure: Failure
    setup: CheckRun | None = None
    """The set-up command, where the commit breaks it."""
    logs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


OrderReport = AttemptDone | ChecksDone | NotDone
NumberedEvent = Progress | OrderReport
OrderEvent = NumberedEvent | Sign


class NodeHost(Protocol):
    """A machine that works for a run. All its verbs may be repeated: an order is named by its key, and done once."""

    async def start(self, key: str, order: Order) -> None:
        """Begin an order, unless it was begun already."""
        ...

    def follow(self, key: str, since: int = 0) -> AsyncGenerator[OrderEvent, None]:
        """Its events from a number on; a report is the last one. Raises `UnknownOrderError` where it is not held.

        Signs have no number: whoever follows gets those that are still to be answered.
        """
        ...

    async def answer(self, key: str, number: int, at: int, part: bytes, *, last: bool) -> None:
        """A part of the answer to a call that the order asked for."""
        ...

    async def instruct(self, key: str, number: int, instruction: Instruction) -> None:
        """What the operator tells the attempt, by its number."""
        ...

    async def cancel(self, key: str) -> None:
        """Stop an order, which then ends with a report that says so."""
        ...

    async def acknowledge(self, key: str) -> None:
        """Let the host forget an order whose report has arrived."""
        ...


class NodeLiedError(Exception):
    """A node sent what it may not send."""
