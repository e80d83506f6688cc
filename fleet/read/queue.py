"""The merge queue: what waits, what is being tested, the suspects of a red batch, and what batches came to."""

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import BatchTested
from fleet.core.policy.landing import is_full
from fleet.core.state.state import Batch, RunState
from fleet.read.run_view import commits_tested


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A verified subtask that waits to land."""

    subtask: SubtaskId
    title: str
    """Empty if it is no longer planned."""
    is_suspect: bool
    """Whether it may be what made a merged tree red."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch under test."""

    number: int
    members: tuple[SubtaskId, ...]
    is_alone: bool
    """Whether a suspect is tested by itself."""
    formed_at: float


@dataclass(frozen=True, slots=True)
class SentBack:
    """A subtask that a batch sent back."""

    subtask: SubtaskId
    why: str


@dataclass(frozen=True, slots=True)
class PastBatch:
    """A batch that was tested, and what became of its members."""

    number: int
    members: tuple[SubtaskId, ...]
    """Empty if it is not known what it consisted of."""
    at: float
    """When its result came."""
    seconds: float
    landed: tuple[SubtaskId, ...]
    sent_back: tuple[SentBack, ...]
    is_red: bool
    suspects: tuple[SubtaskId, ...]
    """The remaining suspects; where nothing narrows them down, all members."""

    @property
    def subtasks(self) -> tuple[SubtaskId, ...]:
        """Those that it decided about: first the ones that were sent back."""
        return (*(out.subtask for out in self.sent_back), *self.landed)


@dataclass(frozen=True, slots=True)
class MergeQueue:
    """The merge queue in front of the integration branch."""

    entries: tuple[QueueEntry, ...]
    """In landing order, those under test included."""
    testing: tuple[OpenBatch, ...]
    suspects: tuple[SubtaskId, ...]
    red_checks: tuple[str, ...]
    """The commands that made them suspects."""
    batches: int
    """Batches that were formed."""
    red: int
    """Batches with a failed check."""
    is_full: bool
    """Whether so much work waits that no new attempt starts before some has landed."""

    @property
    def candidates(self) -> frozenset[SubtaskId]:
        """Those that wait, and those that were taken out of it to be tested alone."""
        alone = {id_ for batch in self.testing if batch.is_alone for id_ in batch.members}
        return frozenset({entry.subtask for entry in self.entries} | alone)


@dataclass(frozen=True, slots=True)
class ResultBranch:
    """What landed, and where it is published."""

    commits: int
    tested: int
    """Those whose own tree was tested."""
    branch: str
    published: Sha | None
    """Its commit; None if the branch does not exist yet."""
    is_behind: bool
    """Whether more has landed than is published."""


def merge_queue(state: RunState) -> MergeQueue:
    landing = state.landing
    return MergeQueue(
        entries=tuple(_entries(state)),
        testing=tuple(_open_batch(batch) for batch in landing.open_batches),
        suspects=landing.suspects,
        red_checks=tuple(check.command for check in landing.suspicion if not check.passed),
        batches=landing.batches,
        red=landing.red,
        is_full=is_full(state),
    )


def _entries(state: RunState) -> Iterable[QueueEntry]:
    suspects = frozenset(state.landing.suspects)
    for id_ in state.landing.queue:
        spec = state.specs.get(id_)
        yield QueueEntry(id_, spec.title if spec is not None else "", id_ in suspects)


def _open_batch(batch: Batch) -> OpenBatch:
    return OpenBatch(batch.number, _members(batch), batch.alone, batch.formed_at)


def _members(batch: Batch | None) -> tuple[SubtaskId, ...]:
    return tuple(member.subtask for member in batch.members) if batch is not None else ()


def result_branch(state: RunState) -> ResultBranch:
    return ResultBranch(
        commits=state.commits,
        tested=commits_tested(state),
        branch=state.result_branch,
        published=state.published,
        is_behind=bool(state.commits) and state.published != state.tip,
    )


def past_batch(before: RunState | None, result: BatchTested) -> PastBatch:
    """What a result says about the batch that was open in the state before it."""
    batch = before.landing.open_batch(result.number) if before is not None else None
    members = _members(batch)
    return PastBatch(
        number=result.number,
        members=members,
        at=result.at,
        seconds=result.at - batch.formed_at if batch is not None else 0.0,
        landed=tuple(member.subtask for member in result.landed),
        sent_back=tuple(SentBack(out.subtask, out.failure.summary) for out in result.ejected),
        is_red=bool(result.red),
        suspects=tuple(result.suspects) or members,
    )
