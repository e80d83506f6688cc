"""Facts about landing: batches, the result branch, and commits that were lost."""

from typing import Literal

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.state.kinds.fact_parts import CheckRun, Ejected, Happened, Member


class BatchFormed(Happened):
    """A prefix of the merge queue is tested. Several may be open at once; a longer one holds the shorter ones."""

    kind: Literal["batch_formed"] = "batch_formed"
    number: int
    """The batch's number, from 1."""
    members: tuple[Member, ...]
    alone: bool = False
    """Not a prefix: a suspect that is tested again by itself while the queue continues without it."""


class BatchTested(Happened):
    """The result of testing a batch. Members that neither landed nor were ejected stay in the queue."""

    kind: Literal["batch_tested"] = "batch_tested"
    number: int
    """The batch's number, from 1."""
    tip: Sha
    landed: tuple[Member, ...] = ()
    """Their commits are those on the integration branch."""
    ejected: tuple[Ejected, ...] = ()
    red: bool = False
    suspects: tuple[SubtaskId, ...] = ()
    """At least one of these members made the batch red. Empty means all that are still queued."""
    checks: tuple[CheckRun, ...] = ()
    proofs: tuple[CheckRun, ...] = ()
    """Checks besides `checks` that passed on the trees of what landed, with the end of their output."""
    gate_runs: int = 0
    """How often the gate was run for it. A known result of a tree is reused."""


class Published(Happened):
    """The user's result branch moved to a landed tip."""

    kind: Literal["published"] = "published"
    tip: Sha


class PublishFailed(Happened):
    """The result branch could not be moved; another try follows at `not_before`."""

    kind: Literal["publish_failed"] = "publish_failed"
    tip: Sha
    why: str
    not_before: float
    aside: bool = False
    """An error of fleet is the reason, twice: this tip is not tried again until the run is resumed."""


class WorkLost(Happened):
    """Commits that the journal names are lost, as an engine finds before it begins to work."""

    kind: Literal["work_lost"] = "work_lost"
    tip: Sha
    """The commit the integration branch points to now."""
    commits: tuple[Sha, ...] = ()
    """The lost commits."""
    again: tuple[SubtaskId, ...] = ()
    """Subtasks whose own commit is intact but whose landed commit is lost: they land again."""
    anew: tuple[SubtaskId, ...] = ()
    """Subtasks whose work is lost: another attempt does it."""
    unpublished: bool = False
    """The result branch is missing from the user's repository."""


LandingFact = BatchFormed | BatchTested | Published | PublishFailed | WorkLost
