"""Facts about attempts, from the decision to try to what policy does about a failure."""

from typing import Literal

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.plans.plan import Effort
from fleet.core.plans.rungs import Size
from fleet.core.state.kinds.fact_parts import (
    CheckRun,
    Ejected,
    Failure,
    Happened,
    Member,
    Remedy,
    Report,
    RungChoice,
    Strategy,
)


class AttemptStarted(Happened):
    """The decision to try a subtask; its worker begins when a worktree is ready."""

    kind: Literal["attempt_started"] = "attempt_started"
    subtask: SubtaskId
    number: int
    """The attempt's number, from 1."""
    worker: str
    model: str | None
    base: Sha
    strategy: Strategy
    guidance: str = ""
    allowance: float | None = None
    """What the attempt at an area may cost, in dollars."""
    effort: Effort | None = None
    size: Size | None = None
    """How large the subtask is by its estimate. None in facts of early versions."""
    choice: RungChoice | None = None
    """Why it has this model and effort, if its worker has rungs."""


class WorkerStarted(Happened):
    """The worker has its worktree, and its checks were run on the base."""

    kind: Literal["worker_started"] = "worker_started"
    subtask: SubtaskId
    number: int
    before: tuple[CheckRun, ...] = ()
    """The results of its checks on the base, without their output, so that a resumed run need not repeat them."""
    node: str = ""
    """The node that it works on; empty: the manager's machine."""


class AttemptCommitted(Happened):
    """The worker reported done; its change is committed and pinned by a ref."""

    kind: Literal["attempt_committed"] = "attempt_committed"
    subtask: SubtaskId
    number: int
    commit: Sha
    paths: tuple[str, ...]
    report: Report


class AttemptUnchanged(Happened):
    """The worker reported done and changed no file, as its step may: there is nothing to commit or land."""

    kind: Literal["attempt_unchanged"] = "attempt_unchanged"
    subtask: SubtaskId
    number: int
    report: Report


class AttemptVerified(Happened):
    """The subtask's checks pass on its commit: it may land."""

    kind: Literal["attempt_verified"] = "attempt_verified"
    subtask: SubtaskId
    number: int
    checks: tuple[CheckRun, ...]


class AttemptFailed(Happened):
    """An attempt failed. The remedy is a fact of its own."""

    kind: Literal["attempt_failed"] = "attempt_failed"
    subtask: SubtaskId
    number: int
    failure: Failure
    report: Report | None = None
    commit: Sha | None = None
    """The unfinished work that was kept, if any."""
    checks: tuple[CheckRun, ...] = ()


class RemedyChosen(Happened):
    """Policy chose a remedy for a failure."""

    kind: Literal["remedy_chosen"] = "remedy_chosen"
    subtask: SubtaskId
    number: int
    remedy: Remedy
    not_before: float = 0.0
    guidance: str = ""
    climbs: bool = False
    """Whether the next rung of the worker's ladder takes it."""


AttemptFact = (
    AttemptStarted
    | WorkerStarted
    | AttemptCommitted
    | AttemptUnchanged
    | AttemptVerified
    | AttemptFailed
    | RemedyChosen
)


# ---- landing facts ---------------------------------------------------------------------------------------------------
# Facts about landing: batches, the result branch, and commits that were lost.


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
