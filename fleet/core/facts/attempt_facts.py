"""Facts about attempts, from their start to the remedy for a failure."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.facts.fact_parts import (
    CheckRun,
    Ejected,
    Failure,
    Member,
    Remedy,
    Report,
    RungChoice,
    Strategy,
    TimedFact,
)
from fleet.core.plans.limits import Size
from fleet.core.plans.plan import Effort, FrozenModel, rename_keys


class AttemptStarted(TimedFact):
    """The engine decided to start an attempt. The worker starts when a worktree is ready."""

    kind: Literal["attempt_started"] = "attempt_started"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt, from 1."""
    worker: str
    """Worker kind named by the plan."""
    model: str | None
    """Model to use. Null: the worker's default."""
    base: Sha
    """Commit that the attempt starts from."""
    strategy: Strategy
    """Reason for the attempt."""
    guidance: str = ""
    """Instructions that differ from earlier attempts."""
    allowance: float | None = None
    """Budget of an attempt at an area, in dollars."""
    effort: Effort | None = None
    """Reasoning effort of the model. Null: the model's default."""
    size: Size | None = None
    """Size of the subtask, based on its estimate. Null in facts of early versions."""
    choice: RungChoice | None = None
    """How the model and effort were chosen, if the worker has a ladder of models."""


class WorkerStarted(TimedFact):
    """The worker has its worktree, and the checks of the subtask ran on the base."""

    kind: Literal["worker_started"] = "worker_started"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    before: tuple[CheckRun, ...] = ()
    """Results of the checks on the base, without their output. A resumed run does not repeat them."""
    node: str = ""
    """Node that runs the attempt. Empty: the manager's machine."""


class AttemptCommitted(TimedFact):
    """The worker reported success, and its change was committed and pinned by a ref."""

    kind: Literal["attempt_committed"] = "attempt_committed"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    commit: Sha
    """The commit."""
    paths: tuple[str, ...]
    """Changed files."""
    report: Report
    """The worker's report. Not verified."""


class AttemptUnchanged(TimedFact):
    """The worker reported success without changing a file, as the subtask allows. There is no commit."""

    kind: Literal["attempt_unchanged"] = "attempt_unchanged"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    report: Report
    """The worker's report. Not verified."""


class AttemptVerified(TimedFact):
    """The checks of the subtask passed on the commit, so it may land."""

    kind: Literal["attempt_verified"] = "attempt_verified"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    checks: tuple[CheckRun, ...]
    """Checks, with their results."""


class AttemptFailed(TimedFact):
    """An attempt failed. The remedy is recorded separately."""

    kind: Literal["attempt_failed"] = "attempt_failed"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    failure: Failure
    """Cause of the failure."""
    report: Report | None = None
    """The worker's report, if there is one. Not verified."""
    commit: Sha | None = None
    """Unfinished work that was kept, if any."""
    checks: tuple[CheckRun, ...] = ()
    """Checks that ran, with their results."""


class RemedyChosen(TimedFact):
    """The engine chose a remedy for a failed attempt."""

    kind: Literal["remedy_chosen"] = "remedy_chosen"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the failed attempt."""
    remedy: Remedy
    """The remedy."""
    not_before: float = 0.0
    """Earliest time of the next attempt."""
    guidance: str = ""
    """Instructions for the next attempt."""
    climbs: bool = False
    """Whether the next attempt uses the next rung of the worker's ladder."""


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


class BatchFormed(TimedFact):
    """The engine started to test a prefix of the merge queue.

    Several batches may be open. A longer batch contains the shorter ones.
    """

    kind: Literal["batch_formed"] = "batch_formed"
    number: int
    """Number of the batch, from 1."""
    members: tuple[Member, ...]
    """Candidates in the batch, in queue order."""
    alone: bool = False
    """Whether the batch is a single suspect that is tested again while the queue continues without it."""


class BatchTested(TimedFact):
    """Result of a tested batch. Members that neither landed nor were ejected stay in the queue."""

    kind: Literal["batch_tested"] = "batch_tested"
    number: int
    """Number of the batch."""
    tip: Sha
    """Tip of the integration branch after the landing."""
    landed: tuple[Member, ...] = ()
    """Landed candidates, with their commits on the integration branch."""
    ejected: tuple[Ejected, ...] = ()
    """Candidates removed from the queue, each with its failure."""
    red: bool = False
    """Whether a check failed on the merged tree."""
    suspects: tuple[SubtaskId, ...] = ()
    """Members of which at least one made the batch fail. Empty: all members that are still queued."""
    checks: tuple[CheckRun, ...] = ()
    """Checks of the merged tree, with their results."""
    proofs: tuple[CheckRun, ...] = ()
    """Other checks that passed on the trees of landed commits, with the end of their output."""
    gate_runs: int = 0
    """Number of times the gate ran for this batch. The known result of a tree is reused."""


class Published(TimedFact):
    """The result branch was moved to a landed commit."""

    kind: Literal["published"] = "published"
    tip: Sha
    """Commit that the result branch points to."""


class PublishFailed(TimedFact):
    """The result branch could not be moved. The next try happens at `not_before`."""

    kind: Literal["publish_failed"] = "publish_failed"
    tip: Sha
    """Commit that the result branch should point to."""
    why: str
    """Cause of the failure."""
    not_before: float
    """Earliest time of the next try."""
    aside: bool = False
    """Whether an internal error caused two failures. The commit is not tried again until the run is resumed."""


class WorkLost(TimedFact):
    """Commits that the journal names are missing. The engine detects this when it starts."""

    kind: Literal["work_lost"] = "work_lost"
    tip: Sha
    """Commit that the integration branch points to now."""
    commits: tuple[Sha, ...] = ()
    """Missing commits."""
    reland: tuple[SubtaskId, ...] = ()
    """Subtasks whose landed commit is missing but whose own commit exists. They land again."""
    redo: tuple[SubtaskId, ...] = ()
    """Subtasks whose work is missing. Another attempt does it again."""
    unpublished: bool = False
    """Whether the result branch is missing from the user's repository."""

    @model_validator(mode="before")
    @classmethod
    def _load_older(cls, data: Any) -> Any:
        return rename_keys(data, {"again": "reland", "anew": "redo"})


LandingFact = BatchFormed | BatchTested | Published | PublishFailed | WorkLost


# ---- review facts ----------------------------------------------------------------------------------------------------
# Facts about reviews of changes by other models: votes, their findings, and the outcomes of findings.


FindingResult = Literal[
    "fixed",  # a later attempt at the subtask passed without the reported line
    "ignored",  # an attempt passed with that line
    "reverted",  # an attempt passed with that line, and the change of a later subtask removed it
]


class ReviewFinding(FrozenModel):
    """A fault that a reviewer reported. Untrusted."""

    file: str
    """File that the finding concerns."""
    line: int
    """Line in the changed file, or in the original file if the change removes the line."""
    problem: str
    """Description of the fault."""
    text: str = ""
    """Text of the line in the diff."""
    sign: Literal["+", "-", " "] = "+"
    """Whether the change adds, removes or keeps the line."""


class Vote(FrozenModel):
    """One review of a change. A review without findings approves the change."""

    criterion: str
    """Criterion that the review decides."""
    focus: str
    """Faults that the reviewer was asked to look for."""
    vote: int
    """Number of the vote, from 1."""
    model: str
    """Model that reviewed the change."""
    findings: tuple[ReviewFinding, ...] = ()
    """Findings, each for a line of the diff."""
    discarded: int = 0
    """Number of findings that did not point to a line of the diff. They do not count."""

    @model_validator(mode="before")
    @classmethod
    def _load_older(cls, data: Any) -> Any:
        return rename_keys(data, {"looks_for": "focus"})


class AskedVote(FrozenModel):
    """A review requested as part of a batch."""

    id: str
    """Id of the review in the batch, unique across runs."""
    criterion: str
    """Criterion that the review decides."""
    focus: str
    """Faults that the reviewer is asked to look for."""
    vote: int
    """Number of the vote, from 1."""
    model: str
    """Model that reviews the change."""

    @model_validator(mode="before")
    @classmethod
    def _load_older(cls, data: Any) -> Any:
        return rename_keys(data, {"looks_for": "focus"})


class FindingSettled(FrozenModel):
    """The outcome of one finding."""

    subtask: SubtaskId
    """Subtask whose change was reviewed."""
    attempt: int
    """Number of the reviewed attempt."""
    finding: ReviewFinding
    """The finding."""
    result: FindingResult
    """Outcome of the finding."""

    @field_validator("result", mode="before")
    @classmethod
    def _load_older(cls, result: Any) -> Any:
        return "fixed" if result == "mended" else result


class ReviewBatched(TimedFact):
    """A batch of reviews is about to be sent to the model service (without its name), or was sent (with its name)."""

    kind: Literal["review_batched"] = "review_batched"
    subtask: SubtaskId
    """Subtask whose change is reviewed."""
    number: int
    """Number of the attempt."""
    asked: tuple[AskedVote, ...]
    """Reviews in the batch, one for each vote."""
    cost: Cost
    """Highest possible cost of the batch."""
    batch: str = ""
    """Name given by the service. Empty: the batch is about to be sent."""


class ReviewUnbatched(TimedFact):
    """The service did not accept a batch. Its reviews are requested one by one, at the full price."""

    kind: Literal["review_unbatched"] = "review_unbatched"
    subtask: SubtaskId
    """Subtask whose change is reviewed."""
    number: int
    """Number of the attempt."""
    why: str
    """Cause, from the service's response."""


class ReviewVoted(TimedFact):
    """Reviews of a change were received: a single one, or all reviews of a batch."""

    kind: Literal["review_voted"] = "review_voted"
    subtask: SubtaskId
    """Subtask whose change was reviewed."""
    number: int
    """Number of the attempt."""
    votes: tuple[Vote, ...]
    """Reviews, with their findings."""
    batch: str = ""
    """Batch that the reviews belong to. The batch is then complete."""


class FindingsSettled(TimedFact):
    """An attempt passed, which decides the outcome of findings about its subtask and about lines that it removes."""

    kind: Literal["findings_settled"] = "findings_settled"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    settled: tuple[FindingSettled, ...]
    """Findings whose outcome is new."""


ReviewFact = ReviewBatched | ReviewUnbatched | ReviewVoted | FindingsSettled
