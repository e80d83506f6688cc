"""Facts: what happened in a run, past tense, in the order it is true. The journal holds nothing else.

A fact that was ever written must load for ever: fields are added with defaults, never renamed or removed.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter

from fleet.core.ids import QuestionId, RunId, Sha, SubtaskId
from fleet.core.plan import Plan, Shape
from fleet.core.policy import Policy
from fleet.core.revision import Revision
from fleet.core.usage import Cost, Usage

FailureKind = Literal[
    "transient",  # the model's service: limits, overload, a broken connection or stream
    "protocol",  # answers that are none: no tool, malformed input, an unknown stop reason
    "tool",  # a tool or command the worker needs does not do its job
    "check",  # an acceptance check failed
    "vacuous",  # an acceptance check passed before any work was done
    "empty",  # claimed done, nothing changed
    "bounds",  # changed files that were not its to change, or that may not be committed
    "conflict",  # does not merge with what landed meanwhile
    "integration",  # merges, but the merged tree is red
    "too_complex",
    "ambiguous",
    "refusal",
    "budget",  # turns, time, tokens or dollars of the attempt or its subtask are spent
    "spent",  # the budget of the run: the attempt was stopped, and goes on when there is more
    "infrastructure",  # ours or the machine's: worktrees, boxes, disk
    "configuration",  # a wrong key, an unknown model: nothing will work until someone mends it
    "crash",  # a bug of ours
    "other",
]
FREE: frozenset[FailureKind] = frozenset({"transient", "infrastructure", "crash", "configuration", "spent"})
"""Not the subtask's fault: these use up none of its attempts. That is what they mean, so it never changes."""
Strategy = Literal["first", "retry", "resolve", "alternative", "split", "human"]
Remedy = Literal["retry", "resolve", "planner", "skip"]
Role = Literal["planner", "sub_planner", "worker", "resolver"]
"""What a call to a model was for."""
ServiceCondition = Literal[
    "up",
    "down",  # nobody answers, or it fails whoever asks
    "limited",  # a limit that holds for long
    "refused",  # the key, its rights or the money behind it
]
Ending = Literal["landed", "partial", "cancelled", "aborted", "budget", "failed"]


class Failure(Shape):
    """Why something did not work, with what a planner needs to choose a better way."""

    kind: FailureKind
    summary: str
    evidence: str = ""
    status: int | None = None
    """What a service said in HTTP, where that is why."""


class Report(Shape):
    """What a worker says it did. A claim."""

    status: Literal["done", "failed", "blocked"]
    summary: str
    result: dict[str, JsonValue] = Field(default={})
    error_kind: str | None = None
    error_message: str | None = None
    recommendations: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    discovered: tuple[str, ...] = ()


class RanTests(Shape):
    """The tests that a check ran, one by one, as the runner told them. Never written down: there may be many."""

    ran: frozenset[str] = frozenset()
    """Those that came to an end of their own: they passed or failed."""
    passed: frozenset[str] = frozenset()


class CheckRun(Shape):
    """One check that was run: by us, in a box, on a known tree."""

    criterion: str
    command: str
    passed: bool
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    output: str = ""
    """The end of what it printed."""
    flaky: bool = False
    """It failed, and passed when it was run again on the same tree."""
    tree: Sha = ""
    log: str = ""
    """The file with all it printed, below the run's folder."""
    tests: int | None = None
    """How many tests passed, where their runner said so."""
    heard: RanTests | None = Field(default=None, exclude=True, repr=False)
    """What it said, as long as it is compared with."""

    @property
    def fine(self) -> bool:
        """Whether it stands in nobody's way on a merged tree."""
        return self.passed or self.flaky


class Member(Shape):
    """A candidate in a batch."""

    subtask: SubtaskId
    attempt: int
    commit: Sha
    tested: bool = False
    """Of one that landed: whether the tree of this very commit passed, not only one further up."""
    tree: Sha = ""
    """Of one that landed: the tree of the commit. Empty where a crash took the record with it."""


class Ejected(Shape):
    """A candidate that is sent back."""

    subtask: SubtaskId
    attempt: int
    failure: Failure


class Happened(Shape):
    """What all facts have: when."""

    at: float


class RunStarted(Happened):
    """A run begins: what it is for, where, from which commit, under which limits. Always the first fact."""

    kind: Literal["run_started"] = "run_started"
    run: RunId
    goal: str
    repository: str
    base: Sha
    base_name: str
    result_branch: str
    policy: Policy
    plan: Plan | None = None
    rollback: Plan | None = None
    """What undoes the plan, where the plan names a rollback plan that was found."""
    values: dict[str, JsonValue] = Field(default={})
    """What the parameters of the plan's file were set to. They stand in the plan already."""
    sandbox: str = "bubblewrap"
    simulated: bool = False


class EngineStarted(Happened):
    """A process took over the run. What it finds running was interrupted."""

    kind: Literal["engine_started"] = "engine_started"
    epoch: int
    pid: int
    host: str
    version: str
    sandbox: str | None = None
    """How commands run from now on; None: as before."""
    base_url: str | None = None
    """The models' service that the command line named; None: as the configuration says."""


class EngineStopped(Happened):
    """A process left the run in good order. After a crash there is none."""

    kind: Literal["engine_stopped"] = "engine_stopped"
    why: str


class BaseChecked(Happened):
    """What the project's gate says of the base, before anything is spent on it."""

    kind: Literal["base_checked"] = "base_checked"
    base: Sha
    checks: tuple[CheckRun, ...] = ()
    failure: Failure | None = None
    """Why it could not be checked."""


class WarningNoted(Happened):
    """Something a person should know that stops nothing."""

    kind: Literal["warning_noted"] = "warning_noted"
    text: str


class PlannerCalled(Happened):
    """The decision to call a planner."""

    kind: Literal["planner_called"] = "planner_called"
    call: int
    why: str
    """What it is asked about: `start`, `failures`, `reports`, `answers`, `budget` or `conclude`."""
    area: SubtaskId | None = None
    """Whose planner; None: the run's own. So in all that follows."""


class ModelCalled(Happened):
    """A model answered, and what that used."""

    kind: Literal["model_called"] = "model_called"
    role: Role
    model: str
    usage: Usage
    dollars: float | None
    """None: the price of this model is not known."""
    seconds: float
    call: int | None = None
    """The number of the planner call, where it was one."""
    area: SubtaskId | None = None
    subtask: SubtaskId | None = None
    attempt: int | None = None
    turn: int = 0
    doing: str = ""
    """What the answer asks for, in a few words: the tools it calls."""


class CallsHeld(Happened):
    """From now on the calls under way may cost up to this much: what a crash leaves in doubt."""

    kind: Literal["calls_held"] = "calls_held"
    cost: Cost


class CallLost(Happened):
    """A call that was stopped while it was under way: its answer was paid for, and never came. At most this much."""

    kind: Literal["call_lost"] = "call_lost"
    role: Role
    model: str
    cost: Cost
    subtask: SubtaskId | None = None
    attempt: int | None = None


class CallRefused(Happened):
    """What is left of the run's budget does not cover a call: nothing new begins until there is more."""

    kind: Literal["call_refused"] = "call_refused"
    why: str


class BudgetRanLow(Happened):
    """A soft limit is reached: the planner is told, and sees to it that what is close gets done."""

    kind: Literal["budget_ran_low"] = "budget_ran_low"
    why: str


class ServiceChanged(Happened):
    """What all calls wait for at the models' service, or that it answers again. Only of what lasts."""

    kind: Literal["service_changed"] = "service_changed"
    scope: str = ""
    """The family of models it is about; empty: the whole service."""
    condition: ServiceCondition
    why: str = ""
    status: int | None = None


class PlanRevised(Happened):
    """A revision was applied whole: the plan has a new version."""

    kind: Literal["plan_revised"] = "plan_revised"
    call: int | None
    """None: a person edited the plan."""
    by: str
    revision: Revision
    area: SubtaskId | None = None


class PlanGraded(Happened):
    """What was noticed of a version of the plan before anything is spent on it. It stops nothing."""

    kind: Literal["plan_graded"] = "plan_graded"
    version: int
    warnings: tuple[str, ...]


class PlannerFailed(Happened):
    """A call of a planner came to nothing; it is asked again at `not_before`."""

    kind: Literal["planner_failed"] = "planner_failed"
    call: int
    failure: Failure
    not_before: float
    area: SubtaskId | None = None


class PlanApproved(Happened):
    """A version of the plan, or a part of it, may begin."""

    kind: Literal["plan_approved"] = "plan_approved"
    version: int
    by: str
    subtasks: tuple[SubtaskId, ...] | None = None
    """What of it; None: all that waits."""
    automatic: bool = False
    """By the rules of `[review]`, not by a person."""


class PlanRejected(Happened):
    """A person says no, and why: the planner is told and may revise. Nothing of it begins."""

    kind: Literal["plan_rejected"] = "plan_rejected"
    version: int
    by: str
    reason: str
    subtasks: tuple[SubtaskId, ...] | None = None
    """What of it; None: all that waits."""


class AttemptStarted(Happened):
    """The decision to try; the worker begins when a worktree is ready."""

    kind: Literal["attempt_started"] = "attempt_started"
    subtask: SubtaskId
    number: int
    """Of the attempt, from 1."""
    worker: str
    model: str | None
    base: Sha
    strategy: Strategy
    guidance: str = ""
    allowance: float | None = None
    """Of an area: the dollars it may cost."""


class WorkerStarted(Happened):
    """The worker has its worktree, and its checks were run on the base."""

    kind: Literal["worker_started"] = "worker_started"
    subtask: SubtaskId
    number: int
    before: tuple[CheckRun, ...] = ()
    """What its checks said of the base, without what they printed: a run that is resumed need not ask again."""


class AttemptCommitted(Happened):
    """The worker reported done; its change is committed, and pinned by a ref."""

    kind: Literal["attempt_committed"] = "attempt_committed"
    subtask: SubtaskId
    number: int
    commit: Sha
    paths: tuple[str, ...]
    report: Report


class AttemptUnchanged(Happened):
    """The worker reported done and changed no file, as its step may: there is nothing to commit, or to land."""

    kind: Literal["attempt_unchanged"] = "attempt_unchanged"
    subtask: SubtaskId
    number: int
    report: Report


class AttemptVerified(Happened):
    """The checks of the subtask pass on its commit: it may land."""

    kind: Literal["attempt_verified"] = "attempt_verified"
    subtask: SubtaskId
    number: int
    checks: tuple[CheckRun, ...]


class AttemptFailed(Happened):
    """An attempt came to nothing: the worker, its checks or the machine. What is done about it is the next fact."""

    kind: Literal["attempt_failed"] = "attempt_failed"
    subtask: SubtaskId
    number: int
    failure: Failure
    report: Report | None = None
    commit: Sha | None = None
    """The work that was kept, where there was any."""
    checks: tuple[CheckRun, ...] = ()


class RemedyChosen(Happened):
    """What policy does about a failure."""

    kind: Literal["remedy_chosen"] = "remedy_chosen"
    subtask: SubtaskId
    number: int
    remedy: Remedy
    not_before: float = 0.0
    guidance: str = ""


class BatchFormed(Happened):
    """A prefix of the queue is tested. Several may be open at once, the longer ones holding the shorter."""

    kind: Literal["batch_formed"] = "batch_formed"
    number: int
    """Of the batch, from 1."""
    members: tuple[Member, ...]
    alone: bool = False
    """Not a prefix: a suspect that is tested once more by itself, while the queue goes on without it."""


class BatchTested(Happened):
    """What became of a batch. Members that neither landed nor were ejected stay in the queue."""

    kind: Literal["batch_tested"] = "batch_tested"
    number: int
    """Of the batch, from 1."""
    tip: Sha
    landed: tuple[Member, ...] = ()
    """With the commits as they stand on the integration branch."""
    ejected: tuple[Ejected, ...] = ()
    red: bool = False
    suspects: tuple[SubtaskId, ...] = ()
    """Of a red one: the members of whom at least one is guilty. Empty: all that did not leave the queue."""
    checks: tuple[CheckRun, ...] = ()
    proofs: tuple[CheckRun, ...] = ()
    """What passed on the trees of those that landed and is not among `checks`, with the last of what it printed."""
    gate_runs: int = 0
    """How often the gate was run for it. What was known of a tree is not asked again."""


class Published(Happened):
    """The user's result branch moved to a landed tip."""

    kind: Literal["published"] = "published"
    tip: Sha


class WorkLost(Happened):
    """Commits that the journal names can't be read any more, anywhere: seen when an engine begins, before it works."""

    kind: Literal["work_lost"] = "work_lost"
    tip: Sha
    """Where the integration branch stands now."""
    commits: tuple[Sha, ...] = ()
    """What is gone."""
    again: tuple[SubtaskId, ...] = ()
    """Their own work is whole, and what it landed as is not: it lands once more."""
    anew: tuple[SubtaskId, ...] = ()
    """Their work is gone: another attempt does it."""
    unpublished: bool = False
    """The result branch is gone from the user's repository."""


class PublishFailed(Happened):
    """The result branch could not be moved; it is tried again at `not_before`."""

    kind: Literal["publish_failed"] = "publish_failed"
    tip: Sha
    why: str
    not_before: float


class QuestionAsked(Happened):
    """Past a limit: the engine asks a human. Questions of the planner come with its revision."""

    kind: Literal["question_asked"] = "question_asked"
    about: SubtaskId | None
    question: str
    options: tuple[str, ...] = ()
    evidence: str = ""
    planner: bool = False
    """The planner does not answer. It holds nothing back, and is settled as soon as the planner does."""
    service: str | None = None
    """Of a question about the models' service: the family that waits, or empty for all of it."""


class QuestionAnswered(Happened):
    """A person answered a question."""

    kind: Literal["question_answered"] = "question_answered"
    question: QuestionId
    answer: str
    by: str


class RetryRequested(Happened):
    """A person wants a subtask tried again, past its limits."""

    kind: Literal["retry_requested"] = "retry_requested"
    subtask: SubtaskId
    guidance: str
    by: str


class Paused(Happened):
    """A person wants nothing new to begin; what runs goes on."""

    kind: Literal["paused"] = "paused"
    by: str


class Unpaused(Happened):
    """A person lets it go on."""

    kind: Literal["unpaused"] = "unpaused"
    by: str


class DrainRequested(Happened):
    """Nothing new begins, what runs may finish, then the engine stops: the first Ctrl-C."""

    kind: Literal["drain_requested"] = "drain_requested"
    by: str


class CancelRequested(Happened):
    """A person stops the run and all that it is doing."""

    kind: Literal["cancel_requested"] = "cancel_requested"
    by: str


class LimitsChanged(Happened):
    """A person changed limits of the run. What is none stays as it was."""

    kind: Literal["limits_changed"] = "limits_changed"
    by: str
    workers: int | None = None
    budget_dollars: float | None = None
    budget_minutes: float | None = None
    allow_red_base: bool | None = None
    """Whether a base on which the gate is red stops the run. Looked at when the base is."""
    budget_tokens: int | None = None
    budget_attempts: int | None = None


class RollbackStarted(Happened):
    """The plan failed after it had changed something: what is left of it is given up, and its rollback plan runs."""

    kind: Literal["rollback_started"] = "rollback_started"
    why: str


class RunEnded(Happened):
    """The run is over, and how. It can be reopened, unless all of it landed."""

    kind: Literal["run_ended"] = "run_ended"
    ending: Ending
    why: str


class RunReopened(Happened):
    """An ended run goes on: someone answered, or raised a limit."""

    kind: Literal["run_reopened"] = "run_reopened"
    by: str


Fact = (
    RunStarted
    | EngineStarted
    | EngineStopped
    | BaseChecked
    | WarningNoted
    | PlannerCalled
    | ModelCalled
    | CallsHeld
    | CallLost
    | CallRefused
    | BudgetRanLow
    | ServiceChanged
    | PlanRevised
    | PlanGraded
    | PlannerFailed
    | PlanApproved
    | PlanRejected
    | AttemptStarted
    | WorkerStarted
    | AttemptCommitted
    | AttemptUnchanged
    | AttemptVerified
    | AttemptFailed
    | RemedyChosen
    | BatchFormed
    | BatchTested
    | Published
    | WorkLost
    | PublishFailed
    | QuestionAsked
    | QuestionAnswered
    | RetryRequested
    | Paused
    | Unpaused
    | DrainRequested
    | CancelRequested
    | LimitsChanged
    | RollbackStarted
    | RunEnded
    | RunReopened
)

FACT: TypeAdapter[Fact] = TypeAdapter(Annotated[Fact, Field(discriminator="kind")])
