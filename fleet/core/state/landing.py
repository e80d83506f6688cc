"""The merge queue: its entries, the batches under test and their results."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.core.base.ids import SubtaskId
from fleet.core.base.vector import Vector
from fleet.core.state.facts import CheckRun, Member


@dataclass(frozen=True, slots=True)
class Batch:
    """Candidates that are merged and tested together: a prefix of the queue, or one suspect alone."""

    number: int
    members: tuple[Member, ...]
    formed_at: float
    alone: bool = False

    def holds(self, ids: Iterable[SubtaskId]) -> bool:
        members = {member.subtask for member in self.members}
        return all(id_ in members for id_ in ids)


@dataclass(frozen=True, slots=True)
class TestedBatch:
    """The result of testing a batch. A batch that is stopped because another one answers it has none."""

    __test__ = False  # pytest: not a test class
    number: int
    members: tuple[SubtaskId, ...]
    alone: bool
    """Whether a suspect was tested by itself."""
    at: float
    """When its result came, in seconds since 1970."""
    seconds: float
    landed: tuple[SubtaskId, ...]
    """The entries that landed."""
    sent_back: tuple[SubtaskId, ...]
    """The entries that go back to their planner."""
    red: bool
    suspects: tuple[SubtaskId, ...]
    """The remaining suspects: at least one of them breaks the gate. A green batch has some if it cleared others."""
    failed: tuple[str, ...]
    """The commands that failed."""
    gate_runs: int
    """How often the gate was run."""


@dataclass(frozen=True)
class Landing:
    """The merge queue in front of the integration branch."""

    queue: tuple[SubtaskId, ...] = ()
    open_batches: tuple[Batch, ...] = ()
    """The batches under test: prefixes of the queue, and suspects that left it to be tested alone."""
    batches: int = 0
    """The number of batches that were formed."""
    red: int = 0
    suspects: tuple[SubtaskId, ...] = ()
    """The front of the queue, where at least one entry is known to be guilty."""
    suspicion: tuple[CheckRun, ...] = ()
    """The checks that were red."""
    outcomes: tuple[bool, ...] = ()
    """Of the latest candidates: whether each landed or was guilty of a red tree."""
    tested: Vector[TestedBatch] = field(default_factory=Vector)
    """The tested batches, in the order of their results."""

    @property
    def prefixes(self) -> tuple[Batch, ...]:
        return tuple(batch for batch in self.open_batches if not batch.alone)

    def open_batch(self, number: int) -> Batch | None:
        return next((batch for batch in self.open_batches if batch.number == number), None)
