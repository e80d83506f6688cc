"""The state of a run. It holds causes. Conditions such as ready or blocked are derived in `status.py`.

All values are frozen, and only `history/` creates new ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from fleet.core.base.hours import BY_HOURS
from fleet.core.base.ids import QuestionId, RunId, Sha, SubtaskId
from fleet.core.base.usage import Cost, Spend
from fleet.core.base.vector import Vector
from fleet.core.facts.facts import (
    CheckRun,
    Ending,
    Failure,
    FailureKind,
    FindingResult,
    GateTried,
    IssueSource,
    Member,
    Rehearsal,
    RehearsalNoted,
    Relanding,
    ResultScored,
    ReviewFinding,
    Role,
    RungTally,
    ServiceCondition,
    SetupRun,
    Strategy,
    SubtaskEstimate,
)
from fleet.core.facts.run_facts import NodeConnected
from fleet.core.plans.limits import Policy, RunOverrides, Size
from fleet.core.plans.plan import Effort, Plan, Subtask
from fleet.core.state.subtasks import Attempt, Mark, Subtasks, SubtaskState

# ---- incidents -------------------------------------------------------------------------------------------------------
# Incidents: what failed, what was chosen about it, and how it ended.


POLICY = "policy"
"""Author of a remedy that neither a planner nor a user chose."""
Closing = Literal[
    "landed",
    "parts landed",
    "asked",  # a human was
    "helped",  # a human did, without a question
    "dropped",
    "skipped",
    "rolled back",
    "ended",  # the run
]
STRATEGIES: tuple[Strategy, ...] = ("retry", "resolve", "alternative", "split")
"""The remedies for a failure that need no human."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failure within an incident."""

    subtask: SubtaskId
    attempt: int
    kind: FailureKind
    summary: str


@dataclass(frozen=True, slots=True)
class ChosenRemedy:
    """A remedy that was chosen within an incident, and by whom."""

    strategy: Strategy
    by: str
    at: float
    after: int
    """The number of the attempt whose failure it answers."""
    version: int | None = None
    """The version of the plan, if a planner chose."""
    why: str = ""
    """The guidance of the next attempt, or the reason for a split."""
    not_before: float = 0.0


@dataclass(frozen=True)
class Incident:
    """From a failure to its recovery, or to the point where a human had to help."""

    number: int
    subtask: SubtaskId
    kind: FailureKind
    opened_at: float
    troubles: tuple[Trouble, ...]
    remedies: tuple[ChosenRemedy, ...] = ()
    closed_at: float | None = None
    recovered: bool | None = None
    strategy: Strategy | None = None
    """Strategy that recovered it, or `human` if it was handed over."""
    closing: Closing | None = None
    question: QuestionId | None = None
    """The question to a human that closed it, if one did."""


Incidents = Sequence[Incident]


def strategies_of(incident: Incident) -> frozenset[Strategy]:
    """The strategies chosen about an incident without a human."""
    return frozenset(remedy.strategy for remedy in incident.remedies) & frozenset(STRATEGIES)


def recovered_by(incident: Incident) -> Strategy | None:
    return incident.strategy if incident.recovered else None


# ---- state -----------------------------------------------------------------------------------------------------------


# ---- landing ---------------------------------------------------------------------------------------------------------
# The merge queue: its entries, the batches under test and their results.


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
    """Result of a tested batch. A batch made obsolete by another result has none."""

    __test__ = False  # pytest: not a test class
    number: int
    """Number of the batch, from 1."""
    members: tuple[SubtaskId, ...]
    """Subtasks in the batch, in queue order."""
    alone: bool
    """Whether the batch was a single suspect, tested alone."""
    at: float
    """Time of the result, in seconds since 1970."""
    seconds: float
    """Duration of the test."""
    landed: tuple[SubtaskId, ...]
    """Subtasks that landed."""
    sent_back: tuple[SubtaskId, ...]
    """Subtasks that were removed from the queue."""
    red: bool
    """Whether a check failed on the merged tree."""
    suspects: tuple[SubtaskId, ...]
    """Remaining suspects, of which at least one makes the gate fail. A passing batch has suspects if it cleared
    others."""
    failed: tuple[str, ...]
    """Commands that failed."""
    gate_runs: int
    """Number of times the gate ran."""


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


# ---- state -----------------------------------------------------------------------------------------------------------


# ---- nodes -----------------------------------------------------------------------------------------------------------
# The nodes of a run, as its facts leave them.


NOT_CONNECTED = "not connected yet"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A machine other than the manager's."""

    name: str
    out: str = NOT_CONNECTED
    """Why the node is unavailable. Empty: it is connected."""
    banned: bool = False
    """Whether the node violated the protocol. The run does not use it again."""
    drained_by: str = ""
    """User who drained the node. Empty: not drained."""
    added: bool = False
    """Whether a user added the node during the run and the engine has not connected it yet."""
    greeting: NodeConnected | None = None
    """The node's report at its last connection."""
    losses: int = 0
    """Number of lost connections."""

    @property
    def part_of(self) -> str:
        """Cluster of the machine. Its machines can be drained together."""
        return self.greeting.part_of if self.greeting is not None else ""

    @property
    def lacks(self) -> frozenset[str]:
        """Workers that can't work there."""
        return frozenset(self.greeting.lacks) if self.greeting is not None else frozenset()

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.greeting.labels) if self.greeting is not None else frozenset()


def drained_by(nodes: Mapping[str, NodeState], node: NodeState) -> str:
    """Return the user who drained a node or its cluster. Empty: not drained."""
    cluster = nodes.get(node.part_of)
    return node.drained_by or (cluster.drained_by if cluster is not None else "")


def listed(nodes: Mapping[str, NodeState]) -> list[NodeState]:
    """The nodes by name, without the clusters whose machines are among them."""
    clusters = {node.part_of for node in nodes.values()}
    return [node for name, node in sorted(nodes.items()) if name not in clusters]


# ---- state -----------------------------------------------------------------------------------------------------------


RungKey = tuple[str, str, Effort | None, Size]
"""A worker, its model and effort, and the size of subtasks."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a human."""

    id: QuestionId
    about: SubtaskId | None
    text: str
    options: tuple[str, ...]
    evidence: str
    by: str
    asked_at: float
    area: SubtaskId | None = None
    """Area whose planner asked."""
    planner: bool = False
    """Whether the question reports that the planner does not respond."""
    aside: bool = False
    """Whether the work in question is set aside after an internal error. The run does not wait for an answer."""
    service: str | None = None
    """Model family that does not respond, or empty for all. The question closes when the service recovers."""
    answer: str | None = None
    answered_by: str | None = None

    @property
    def holds_all(self) -> bool:
        """Return whether the question concerns the entire run, so that no new work starts while it is open."""
        return self.about is None and self.by == "fleet" and not self.planner


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of a model family or of the entire service, for which all its calls wait."""

    condition: ServiceCondition
    why: str
    since: float
    unanswered: bool = True
    """Whether it was reported since a person last answered a question about it."""


@dataclass(frozen=True)
class Reading:
    """News for a planner: results of subtasks and answers to questions."""

    reports: Vector[SubtaskId] = field(default_factory=Vector)
    """A subtask may be in it more than once."""
    answers: tuple[QuestionId, ...] = ()
    since: float | None = None
    urgent: bool = False

    def __bool__(self) -> bool:
        return bool(self.reports or self.answers)


@dataclass(frozen=True)
class Planning:
    """The conversation with a planner."""

    calls: int = 0
    open: int | None = None
    why: str = ""
    unread: Reading = Reading()
    reading: Reading = Reading()
    failures: int = 0
    """Failed calls in a row."""
    last_failure: Failure | None = None
    not_before: float = 0.0
    idle_calls: int = 0
    """Consecutive calls without changes while no other work was running."""
    turn: int = 0
    doing: str = ""
    said: str = ""
    """Last text of the model."""
    spent: float = 0.0
    """For an area: cost of the attempts inside it since its own attempt started, in dollars."""
    synthesis: str | None = None
    knows_low_budget: bool = False
    """Whether the planner was called after a budget reached its soft limit."""

    @property
    def is_aside(self) -> bool:
        """Return whether an internal error ended the last call. There are no further calls until a user allows them."""
        return bool(self.failures) and self.last_failure is not None and self.last_failure.kind == "internal"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the plan, with its author and reason."""

    plan: Plan
    changed: tuple[Subtask, ...]
    """Subtasks that differ from the previous version."""
    at: float
    by: str
    why: str
    area: SubtaskId | None = None
    """Area whose planner made the version. None: the run's own planner, or a user."""
    warnings: tuple[str, ...] = ()
    """The linter's warnings about it."""


@dataclass(frozen=True, slots=True)
class Review:
    """An approval or rejection of subtasks."""

    version: int
    """Version of the plan."""
    verdict: Literal["approved", "rejected"]
    """`approved` or `rejected`."""
    subtasks: tuple[SubtaskId, ...]
    """Subtasks that were approved or rejected."""
    by: str
    """User who decided, or `the review rules`."""
    automatic: bool
    """Whether the rules of `[review]` decided, not a user."""
    at: float
    """Time of the decision, in seconds since 1970."""
    why: str = ""
    """Reason for a rejection. Empty for an approval."""

    @property
    def rejected(self) -> bool:
        return self.verdict == "rejected"


@dataclass(frozen=True)
class RunState:
    """Everything that is true of a run."""

    run: RunId
    goal: str
    repository: str
    base: Sha
    base_name: str
    result_branch: str
    policy: Policy
    started_at: float
    sandbox: str
    simulated: bool
    tip: Sha
    rehearsal: Rehearsal | None = None
    """Settings of the rehearsal, if the run is one."""
    relanding: Relanding | None = None
    """Result that the run lands again, if that is its purpose."""
    issue: IssueSource | None = None
    """The issue that the goal was read from, if it was."""
    rehearsed: tuple[RehearsalNoted, ...] = ()
    """Observations of the rehearsal."""
    scored: Mapping[SubtaskId, ResultScored] = field(default_factory=dict)
    """Results of `--for-real` rehearsals, tested with the tests of history."""
    gate_tried: GateTried | None = None
    """Runs of the gate on the rehearsal's newest commit, before the rehearsal started."""
    base_url: str | None = None
    """The model service that was named on the engine's command line."""
    choices: RunOverrides = RunOverrides()
    published: Sha | None = None
    publish_not_before: float = 0.0
    publish_failures: int = 0
    publish_aside: Sha | None = None
    """Tip that is not published because of an internal error. It is not tried again."""
    publish_problem: str = ""
    """Cause of the last failed update of the result branch."""
    plan: Plan = Plan()
    specs: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    """The plan's subtasks by id."""
    rollback: Plan | None = None
    """The plan that undoes the one the run started with."""
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    """The values of the parameters of the plan file that the run started with."""
    undoing: str | None = None
    """Failure that started the rollback plan, if it runs."""
    given: bool = False
    """The run started with a plan."""
    has_planner: bool = True
    """Whether the engine can call the planner, which requires an API key."""
    versions: tuple[Version, ...] = ()
    subtasks: Subtasks = field(default_factory=Subtasks)
    landing: Landing = field(default_factory=Landing)
    gate_command: str | None = None
    """Command of the project's gate. Empty: there is none. None: not recorded."""
    base_checked: bool = False
    base_failure: Failure | None = None
    setup: SetupRun | None = None
    """Last run of the setup command."""
    base_checks: tuple[CheckRun, ...] = ()
    """The project's gate on the base, before anything was done."""
    gate: Mapping[str, float] = field(default_factory=dict)
    """The commands of the project's gate, with the seconds that each took last."""
    red_base: tuple[CheckRun, ...] = ()
    """Checks that failed on the base and have not passed on any tree since."""
    planning: Planning = Planning()
    areas: Mapping[SubtaskId, Planning] = field(default_factory=dict)
    """The conversation with the planner of each area."""
    service: Mapping[str, Outage] = field(default_factory=dict)
    """Model families with an outage. The empty key stands for the entire service."""
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    """Machines other than the manager's, by name."""
    questions: Mapping[QuestionId, Question] = field(default_factory=dict)
    asked: tuple[QuestionId, ...] = ()
    """The questions without an answer."""
    incidents: Vector[Incident] = field(default_factory=Vector)
    past: tuple[RungTally, ...] = ()
    """Results of attempts in earlier runs."""
    tallies: Mapping[RungKey, RungTally] = field(default_factory=dict)
    """Results of attempts in this run."""
    past_estimates: tuple[SubtaskEstimate, ...] = ()
    """Cost and duration of landed subtasks in earlier runs."""
    troubled: Mapping[SubtaskId, int] = field(default_factory=dict)
    """The subtasks with an open incident, and its index."""
    spend: Mapping[Role, Spend] = field(default_factory=dict)
    held: Cost = Cost()
    """Highest possible cost of the calls in flight."""
    doubt: Cost = Cost()
    """The most that interrupted calls may have cost."""
    pending_reviews: Mapping[tuple[SubtaskId, int], Cost] = field(default_factory=dict)
    """The most that a batch of reviews may cost whose results are not there yet, by subtask and attempt."""
    settled: Mapping[tuple[SubtaskId, int, ReviewFinding], FindingResult] = field(default_factory=dict)
    """Outcomes of review findings, by subtask, attempt and finding."""
    low: str = ""
    """Budget that reached its soft limit, if any."""
    refused: str = ""
    """Budget that did not cover a call, if one was refused."""
    epoch: int = 0
    active_s: float = 0.0
    """Seconds that earlier engines worked on the run."""
    engine_since: float | None = None
    approved: int | None = None
    """The version that a person approved last, completely or in part."""
    cleared: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    """Each approved subtask, as it was approved."""
    shelved: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    """Each subtask that a person reviewed and did not approve, as it was then: only a person can approve it."""
    reviews: tuple[Review, ...] = ()
    paused_by: str | None = None
    """User who paused the run. None: not paused."""
    draining: bool = False
    cancelled: bool = False
    ending: Ending | None = None
    ending_why: str = ""
    ended_at: float | None = None
    peak: int = 0
    commits: int = 0
    attempts: int = 0
    warnings: tuple[str, ...] = ()
    last_at: float = 0.0

    def spec(self, id: SubtaskId) -> Subtask:  # noqa: A002 - the name plans give it
        return self.specs[id]

    def start_of(self, id_: SubtaskId) -> Sha:
        """The commit that an attempt at a subtask starts from: the tip, or the parent of the commit that is redone."""
        tasks = self.rehearsal.tasks if self.rehearsal is not None else ()
        return next((task.parent for task in tasks if task.subtask == id_), self.tip)

    @property
    def plan_warnings(self) -> tuple[str, ...]:
        """The linter's warnings about the current version of the plan."""
        return self.versions[-1].warnings if self.versions else ()

    @property
    def ended(self) -> bool:
        return self.ending is not None

    @property
    def paused(self) -> bool:
        return self.paused_by is not None

    @property
    def rests(self) -> bool:
        """Return whether the run is paused for quiet hours and will continue automatically."""
        return self.paused_by == BY_HOURS

    @property
    def for_real(self) -> bool:
        """Whether it is a rehearsal in which planner and workers do history's commits again."""
        return self.rehearsal is not None and self.rehearsal.for_real

    @property
    def spent(self) -> Spend:
        return sum(self.spend.values(), Spend())

    def seconds(self, now: float) -> float:
        """Return the active duration of the run."""
        until = self.ended_at if self.ended_at is not None else now
        return self.active_s + (max(0.0, until - self.engine_since) if self.engine_since is not None else 0.0)

    def seconds_at(self, subtask: SubtaskState, now: float) -> float:
        """Return the duration of a subtask's attempts. A running attempt counts from the start of this engine."""
        since = self.engine_since if self.engine_since is not None else now
        return sum(
            attempt.ended_at - attempt.started_at
            if attempt.ended_at is not None
            else max(0.0, now - max(attempt.started_at, since))
            for attempt in subtask.attempts
        )

    def underway(self) -> Iterator[tuple[SubtaskState, Attempt]]:
        """Attempts that have not ended: running, verifying or landing."""
        for id_ in self.subtasks.first(self.subtasks.marked(Mark.UNDERWAY)):
            subtask = self.subtasks[id_]
            yield subtask, subtask.attempts[-1]

    def running(self) -> list[tuple[SubtaskState, Attempt]]:
        """Attempts that count against the number of workers."""
        running = (self.subtasks[id_] for id_ in self.subtasks.first(self.subtasks.marked(Mark.RUNNING)))
        return [(subtask, subtask.attempts[-1]) for subtask in running]

    def working(self) -> int:
        """The number of agents that work now."""
        return self.subtasks.marked(Mark.WORKING).bit_count()

    def open_questions(self) -> list[Question]:
        return [self.questions[id_] for id_ in self.asked]
