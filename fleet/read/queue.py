"""The merge queue: queued entries, batches under test, the suspects of a red batch, and past batches."""

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
    """Empty if it was removed from the plan."""
    is_suspect: bool
    """Whether it may have caused a red merged tree."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch under test."""

    number: int
    members: tuple[SubtaskId, ...]
    is_alone: bool
    """Whether it tests a single suspect."""
    formed_at: float


@dataclass(frozen=True, slots=True)
class SentBack:
    """A subtask sent back by a batch."""

    subtask: SubtaskId
    why: str


@dataclass(frozen=True, slots=True)
class PastBatch:
    """A tested batch, with the results of its members."""

    number: int
    members: tuple[SubtaskId, ...]
    """Empty if the members are unknown."""
    at: float
    """When it finished."""
    seconds: float
    landed: tuple[SubtaskId, ...]
    sent_back: tuple[SentBack, ...]
    is_red: bool
    suspects: tuple[SubtaskId, ...]
    """The remaining suspects, or all members if they can't be narrowed down."""

    @property
    def subtasks(self) -> tuple[SubtaskId, ...]:
        """The subtasks with a result: those sent back first."""
        return (*(out.subtask for out in self.sent_back), *self.landed)


@dataclass(frozen=True, slots=True)
class MergeQueue:
    """The merge queue in front of the integration branch."""

    entries: tuple[QueueEntry, ...]
    """In landing order, including those under test."""
    testing: tuple[OpenBatch, ...]
    suspects: tuple[SubtaskId, ...]
    red_checks: tuple[str, ...]
    """The failed commands that made them suspects."""
    batches: int
    """Batches formed."""
    red: int
    """Batches with a failed check."""
    is_full: bool
    """Whether new attempts wait because the queue is full."""

    @property
    def candidates(self) -> frozenset[SubtaskId]:
        """The queued subtasks, and those removed from the queue for a test alone."""
        alone = {id_ for batch in self.testing if batch.is_alone for id_ in batch.members}
        return frozenset({entry.subtask for entry in self.entries} | alone)


@dataclass(frozen=True, slots=True)
class ResultBranchView:
    """The landed commits, and the branch where they are published."""

    commits: int
    tested: int
    """Commits whose own tree was tested."""
    branch: str
    published: Sha | None
    """The tip of the branch. None if it does not exist yet."""
    is_behind: bool
    """Whether some landed commits are not published yet."""


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


def result_branch(state: RunState) -> ResultBranchView:
    return ResultBranchView(
        commits=state.commits,
        tested=commits_tested(state),
        branch=state.result_branch,
        published=state.published,
        is_behind=bool(state.commits) and state.published != state.tip,
    )


def past_batch(before: RunState | None, result: BatchTested) -> PastBatch:
    """Combine a result with the batch in the state before it."""
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
