"""Facts about attempts, from the decision to try to what policy does about a failure."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.facts.fact_parts import (
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
from fleet.core.plans.limits import Size
from fleet.core.plans.plan import Effort, Shape, rename_keys


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
    reland: tuple[SubtaskId, ...] = ()
    """Subtasks whose landed commit is lost and whose own commit is intact. They land again."""
    redo: tuple[SubtaskId, ...] = ()
    """Subtasks whose work is lost. Another attempt does it."""
    unpublished: bool = False
    """The result branch is missing from the user's repository."""

    @model_validator(mode="before")
    @classmethod
    def _load_older(cls, data: Any) -> Any:
        return rename_keys(data, {"again": "reland", "anew": "redo"})


LandingFact = BatchFormed | BatchTested | Published | PublishFailed | WorkLost


# ---- review facts ----------------------------------------------------------------------------------------------------
# Facts about reviews of changes by models that did not make them: votes, their findings, what became of these.


FindingResult = Literal[
    "fixed",  # a later attempt at the subtask passed without the reported line
    "ignored",  # an attempt passed with that line
    "reverted",  # an attempt passed with that line, and the change of a later subtask removed it
]


class Finding(Shape):
    """One fault that a reviewer names. Untrusted."""

    file: str
    line: int
    """In the file as the change leaves it, or in the file before it for a line that the change removes."""
    problem: str
    text: str = ""
    """The line of the diff that it names."""
    sign: Literal["+", "-", " "] = "+"
    """Whether the change adds that line, removes it or leaves it."""


class Vote(Shape):
    """One review of a change: it approves if it has no findings."""

    criterion: str
    focus: str
    """The faults that the reviewer was asked to look for."""
    vote: int
    """The number of the vote, from 1."""
    model: str
    findings: tuple[Finding, ...] = ()
    """Each names a line of the diff."""
    discarded: int = 0
    """How many findings named no line of the diff, and do not count."""

    @model_validator(mode="before")
    @classmethod
    def _load_older(cls, data: Any) -> Any:
        return rename_keys(data, {"looks_for": "focus"})


class AskedVote(Shape):
    """A review that a batch was asked for."""

    id: str
    """Its name in the batch, which no other review of any run has."""
    criterion: str
    focus: str
    vote: int
    model: str

    @model_validator(mode="before")
    @classmethod
    def _load_older(cls, data: Any) -> Any:
        return rename_keys(data, {"looks_for": "focus"})


class FindingSettled(Shape):
    """What became of one finding."""

    subtask: SubtaskId
    """The subtask whose change it is about."""
    attempt: int
    finding: Finding
    result: FindingResult

    @field_validator("result", mode="before")
    @classmethod
    def _load_older(cls, result: Any) -> Any:
        return "fixed" if result == "mended" else result


class ReviewBatched(Happened):
    """Reviews go to the models' service as a batch: first without its name, before it is sent, and then with it."""

    kind: Literal["review_batched"] = "review_batched"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    asked: tuple[AskedVote, ...]
    """The reviews, each of which is one vote."""
    cost: Cost
    """The most that it may cost."""
    batch: str = ""
    """The service's name for it; empty: it is about to be sent."""


class ReviewUnbatched(Happened):
    """The service took no batch: its reviews are asked for one by one, at the full price."""

    kind: Literal["review_unbatched"] = "review_unbatched"
    subtask: SubtaskId
    number: int
    why: str


class ReviewVoted(Happened):
    """Reviews of a change are there: one, or all that a batch brought, which is over then."""

    kind: Literal["review_voted"] = "review_voted"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    votes: tuple[Vote, ...]
    """What they found."""
    batch: str = ""
    """The batch that they came with."""


class FindingsSettled(Happened):
    """An attempt passed: what became of the findings about its subtask, and about the lines that it removes."""

    kind: Literal["findings_settled"] = "findings_settled"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    settled: tuple[FindingSettled, ...]
    """Findings whose result is new."""


ReviewFact = ReviewBatched | ReviewUnbatched | ReviewVoted | FindingsSettled
