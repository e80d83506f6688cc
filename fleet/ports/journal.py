"""The engine's interfaces to a journal and a clock, and its own interface for the performers of its commands."""

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
        """Whether another process has written since the last call."""
        ...

    def requests(self) -> list[tuple[int, Request]]: ...


class Recorder(Protocol):
    """The state of a run, and the methods that change it."""

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
        """Return once the user has given an instruction for any subtask."""
        ...
