"""Follows a journal: reads new facts, applies them to the state, and remembers how far it has read."""

from collections.abc import Callable, Sequence
from typing import Protocol

from fleet.core.history.evolve import evolve
from fleet.core.state.facts import Fact
from fleet.core.state.state import RunState

SLICE = 200  # facts read at once; a caller may stop between two slices

OnFact = Callable[[RunState | None, Fact, RunState], None]
"""Called with each new fact, and the state before and after it."""


class FactSource(Protocol):
    """A journal."""

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        """The facts after number `after`, with their numbers; at most `limit`."""
        ...

    def changed(self) -> bool:
        """Whether there may be new facts since the last call."""
        ...


class Follower:
    """The state of one run, from the facts read so far."""

    def __init__(self, on_fact: OnFact | None = None) -> None:
        self.state: RunState | None = None
        self.seq = 0
        self.loaded = False
        """Whether the journal was read to its end."""
        self.on_fact = on_fact

    def catch_up(self, source: FactSource, may_continue: Callable[[], bool] = lambda: True) -> bool:
        """Apply the new facts; return whether there were any. Reads at least one slice of them."""
        if self.loaded and not source.changed():
            return False
        before = self.seq
        while True:
            new = source.facts(self.seq, SLICE)
            for seq, fact in new:
                self._apply(seq, fact)
            self.loaded = len(new) < SLICE
            if self.loaded or not may_continue():
                return self.seq != before

    def _apply(self, seq: int, fact: Fact) -> None:
        before, after = self.state, evolve(self.state, fact)
        self.state, self.seq = after, seq
        if self.on_fact is not None:
            self.on_fact(before, fact, after)
