"""A run as its journal is read: the run so far, and each fact with the run before and after it."""

from collections.abc import Callable
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import BatchTested, Fact
from fleet.core.history.evolve import FactSource, Follower
from fleet.core.state.state import RunState
from fleet.read.queue import PastBatch, past_batch
from fleet.read.run import RunSnapshot, just_after


@dataclass(frozen=True, slots=True)
class Step:
    """A fact that was read, and the state before and after it."""

    before: RunState | None
    fact: Fact
    after: RunState

    @property
    def run(self) -> RunSnapshot:
        """The run after it."""
        return just_after(self.after)

    @property
    def at(self) -> float:
        """When it happened; never before an earlier fact."""
        return self.after.last_at

    def has_subtask(self, id_: SubtaskId | None) -> bool:
        return id_ in self.after.subtasks

    def batch(self, result: BatchTested) -> PastBatch:
        """The batch that its fact is the result of."""
        return past_batch(self.before, result)


class RunReader:
    """A run, as far as its journal was read."""

    def __init__(self, take: Callable[[Step], None] | None = None) -> None:
        """`take` is called with each fact that is read."""
        on_fact = None if take is None else lambda before, fact, after: take(Step(before, fact, after))
        self._follower = Follower(on_fact)

    @property
    def state(self) -> RunState | None:
        return self._follower.state

    @property
    def seq(self) -> int:
        """The number of the last fact that was read."""
        return self._follower.seq

    @property
    def loaded(self) -> bool:
        """Whether the journal was read to its end."""
        return self._follower.loaded

    def read(self, source: FactSource, may_continue: Callable[[], bool]) -> bool:
        """Read new facts; return whether there were any."""
        return self._follower.catch_up(source, may_continue)

    def continue_from(self, other: "RunReader") -> None:
        """Begin where another one has read to."""
        self._follower.state, self._follower.seq = other.state, other.seq

    def snapshot_at(self, now: float, *, alive: bool) -> RunSnapshot | None:
        """None before its first fact was read."""
        return None if self.state is None else RunSnapshot(self.state, now, alive)
