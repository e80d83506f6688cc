"""What the engine needs of a journal and a clock, and what performers of its commands need of the engine."""

from collections.abc import Callable, Sequence
from typing import Protocol

from fleet.core.facts.facts import Fact
from fleet.core.policy.requests import Request
from fleet.core.state.state import RunState


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class Journal(Protocol):
    def append(self, facts: Sequence[Fact], *, taken: Sequence[int] = ()) -> None:
        """Write facts and remove the requests that they answer, in one transaction."""
        ...

    def changed(self) -> bool:
        """Whether another process wrote since the last call."""
        ...

    def requests(self) -> list[tuple[int, Request]]: ...


class Recorder(Protocol):
    """The state of a run, and the way to change it."""

    state: RunState

    async def record(self, *facts: Fact) -> None:
        """Return when the facts are on disk and in the state."""
        ...

    async def propose(self, facts: Callable[[RunState], Sequence[Fact]]) -> None:
        """Record the facts that follow from the state at the moment of recording."""
        ...

    def note(self, *facts: Fact) -> None:
        """Record facts with the next transaction, without waiting for it."""
        ...

    async def wait_instructed(self) -> None:
        """Return once a person has given an instruction, whichever subtask it is for."""
        ...
