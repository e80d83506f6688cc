"""What is true of a run: causes only. Conditions such as ready or blocked are derived in `standing.py`.

All values are frozen; `evolve.py` alone makes new ones.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from fleet.core.facts import (
    CheckRun,
    Ending,
    Failure,
    Member,
    Remedy,
    Report,
    Role,
    ServiceCondition,
    Strategy,
)
from fleet.core.ids import QuestionId, RunId, Sha, SubtaskId
from fleet.core.incidents import Incident
from fleet.core.plan import PLANNER, Plan, Subtask
from fleet.core.policy import Policy
from fleet.core.usage import NOTHING, Cost, Spend

NOT_MOVED = "the result branch could not be moved: "
"""How the warning begins that says why."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a subtask by one worker."""

    number: int
    worker: str
    model: str | None
    base: Sha
    strategy: Strategy
    guidance: str
    started_at: float
    working: bool = False
    before: tuple[CheckRun, ...] = ()
    """What its checks said of its base."""
    commit: Sha | None = None
    worked: bool = False
    """Its worker began."""
    unchanged: bool = False
    """It was done without changing a file: its commit is its base."""
    kept: bool = False
    """The commit is unfinished work: the attempt failed before it was done."""
    paths: tuple[str, ...] = ()
    report: Report | None = None
    verified: bool = False
    checks: tuple[CheckRun, ...] = ()
    failure: Failure | None = None
    landed: Sha | None = None
    tested: bool = False
    """Where it landed: whether the tree of that very commit passed, not only one further up."""
    ended_at: float | None = None
    spend: Spend = Spend()
    turn: int = 0
    doing: str = ""
    allowance: float | None = None
    """Of an area: what the attempt may cost, in dollars."""


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """What happened to one subtask."""

    id: SubtaskId
    parent: SubtaskId | None = None
    area: SubtaskId | None = None
    """The area whose planner made it."""
    depth: int = 0
    attempts: tuple[Attempt, ...] = ()
    failure: Failure | None = None
    """The last failure, until something is done about it."""
    remedy: Remedy | None = None
    """What policy chose for that failure."""
    counted: int = 0
    """Failures that used up an attempt, since a human last helped."""
    retries: int = 0
    """Failures that did not."""
    not_before: float = 0.0
    strategy: Strategy = "first"
    guidance: str = ""
    landed: Sha | None = None
    parts: tuple[SubtaskId, ...] = ()
    dropped: str | None = None
    skipped: bool = False
    question: QuestionId | None = None
    """An open question about it."""
    forgiven: Spend = Spend()
    """What it had used when a human last helped: its budget begins anew there."""
    forgiven_s: float = 0.0

    @property
    def spend(self) -> Spend:
        """What all its attempts used."""
        return sum((attempt.spend for attempt in self.attempts), Spend())

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def unchanged(self) -> bool:
        """It was done, and there was nothing to land."""
        return self.landed is not None and self.attempts[-1].unchanged

    @property
    def current(self) -> Attempt | None:
        """The attempt that is under way."""
        last = self.last
        return last if last is not None and last.ended_at is None else None

    @property
    def closed(self) -> bool:
        """Nothing will happen to it any more, short of a human."""
        return self.landed is not None or bool(self.parts) or self.dropped is not None or self.skipped


@dataclass(frozen=True, slots=True)
class Question:
    """Something a human was asked."""

    id: QuestionId
    about: SubtaskId | None
    text: str
    options: tuple[str, ...]
    evidence: str
    by: str
    asked_at: float
    area: SubtaskId | None = None
    """The area whose planner asked."""
    planner: bool = False
    """It is about the planner not answering."""
    service: str | None = None
    """The part of the models' service it is about; it is settled when that answers again."""
    answer: str | None = None
    answered_by: str | None = None

    @property
    def holds_all(self) -> bool:
        """Whether it is about the whole run and nothing new begins while it is open."""
        return self.about is None and self.by == "fleet" and not self.planner


@dataclass(frozen=True, slots=True)
class Outage:
    """What all calls to a part of the models' service wait for."""

    condition: ServiceCondition
    why: str
    since: float
    heard: bool = True
    """Whether anything was heard of it since a human answered a question about it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Candidates that are being merged and tested together: a prefix of the queue, or one suspect alone."""

    number: int
    members: tuple[Member, ...]
    formed_at: float
    alone: bool = False

    def holds(self, ids: Iterable[SubtaskId]) -> bool:
        mine = {member.subtask for member in self.members}
        return all(id_ in mine for id_ in ids)

    def without(self, gone: Collection[SubtaskId]) -> "Batch":
        return replace(self, members=tuple(member for member in self.members if member.subtask not in gone))


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a batch. One that another batch answered was stopped, and is not among these."""

    number: int
    members: tuple[SubtaskId, ...]
    alone: bool
    at: float
    seconds: float
    landed: tuple[SubtaskId, ...]
    ejected: tuple[SubtaskId, ...]
    red: bool
    suspects: tuple[SubtaskId, ...]
    """Who may be guilty, as one knew then. Also after a green one, which clears others."""
    failed: tuple[str, ...]
    """The commands that were red."""
    gate_runs: int


@dataclass(frozen=True, slots=True)
class Landing:
    """The queue in front of the integration branch."""

    queue: tuple[SubtaskId, ...] = ()
    probes: tuple[Batch, ...] = ()
    """What is being tested side by side: prefixes of the queue, and suspects that left it for a test alone."""
    batches: int = 0
    red: int = 0
    suspects: tuple[SubtaskId, ...] = ()
    """The front of the queue, where at least one of it is known to be guilty."""
    reds: int = 0
    """Red results in a row that all hold the guilty one: narrowing down tests it again and again."""
    suspicion: tuple[CheckRun, ...] = ()
    """The checks that say so."""
    outcomes: tuple[bool, ...] = ()
    """What became of the latest candidates: landed, or guilty of a red tree."""
    tried: tuple[Tried, ...] = ()
    """What was tested, in the order of its results."""

    @property
    def prefixes(self) -> tuple[Batch, ...]:
        return tuple(probe for probe in self.probes if not probe.alone)

    def probe(self, number: int) -> Batch | None:
        return next((probe for probe in self.probes if probe.number == number), None)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the planner has not been told yet, or is being told."""

    reports: tuple[SubtaskId, ...] = ()
    answers: tuple[QuestionId, ...] = ()
    since: float | None = None
    urgent: bool = False

    def __bool__(self) -> bool:
        return bool(self.reports or self.answers)


@dataclass(frozen=True, slots=True)
class Planning:
    """Where the conversation with the planner stands."""

    calls: int = 0
    open: int | None = None
    why: str = ""
    unread: Reading = Reading()
    reading: Reading = Reading()
    failures: int = 0
    """Calls in a row that came to nothing."""
    last_failure: Failure | None = None
    not_before: float = 0.0
    idle_calls: int = 0
    """Calls in a row that changed nothing while nothing else was going on."""
    turn: int = 0
    doing: str = ""
    synthesis: str | None = None
    told_low: bool = False
    """It was called since a budget reached its soft limit."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the plan, and why it came to be."""

    plan: Plan
    at: float
    by: str
    why: str
    area: SubtaskId | None = None
    """Whose planner made it."""
    warnings: tuple[str, ...] = ()
    """What was noticed of it."""


@dataclass(frozen=True, slots=True)
class Review:
    """Who approved or rejected what, when and in which version."""

    version: int
    subtasks: tuple[SubtaskId, ...]
    by: str
    at: float
    rejected: bool = False
    automatic: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
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
    base_url: str | None = None
    """The models' service that its engine was told of on the command line."""
    published: Sha | None = None
    publish_not_before: float = 0.0
    publish_failures: int = 0
    plan: Plan = Plan()
    specs: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    """The plan's subtasks by id."""
    rollback: Plan | None = None
    """What undoes the plan that came with the run."""
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the parameters of the plan that came with the run were set to."""
    undoing: str | None = None
    """Why the rollback plan runs."""
    given: bool = False
    """The plan came with the run, not from the planner."""
    versions: tuple[Version, ...] = ()
    subtasks: Mapping[SubtaskId, SubtaskState] = field(default_factory=dict)
    landing: Landing = Landing()
    base_checked: bool = False
    base_failure: Failure | None = None
    gate: Mapping[str, float] = field(default_factory=dict)
    """The commands of the project's gate, and how many seconds each took last."""
    red_base: tuple[CheckRun, ...] = ()
    """Checks that were red before anything was done, and have not passed on any tree since."""
    planning: Planning = Planning()
    areas: Mapping[SubtaskId, Planning] = field(default_factory=dict)
    """Where the conversation with the planner of each area stands."""
    service: Mapping[str, Outage] = field(default_factory=dict)
    """Parts of the models' service that don't answer: families of models, or empty for all of it."""
    questions: Mapping[QuestionId, Question] = field(default_factory=dict)
    incidents: tuple[Incident, ...] = ()
    spend: Mapping[Role, Spend] = field(default_factory=dict)
    held: Cost = NOTHING
    """What the calls under way may cost at most."""
    doubt: Cost = NOTHING
    """What calls may have cost at most that were under way when they were stopped, or when an engine died."""
    low: str = ""
    """Which budget has reached its soft limit."""
    refused: str = ""
    """Why a call was refused: the budget does not cover it."""
    epoch: int = 0
    active_s: float = 0.0
    """Seconds that earlier engines worked on it."""
    engine_since: float | None = None
    approved: int | None = None
    """The version that a person approved last, at least in part."""
    cleared: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    """What was approved of each subtask."""
    shelved: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    """What a person saw and did not approve: only a person can."""
    reviews: tuple[Review, ...] = ()
    paused: bool = False
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

    @property
    def noticed(self) -> tuple[str, ...]:
        """What there is to say of the plan as it stands."""
        return self.versions[-1].warnings if self.versions else ()

    @property
    def done(self) -> int:
        """Subtasks that are done: as commits, or without any."""
        return self.commits + sum(subtask.unchanged for subtask in self.subtasks.values())

    @property
    def ended(self) -> bool:
        return self.ending is not None

    @property
    def spent(self) -> Spend:
        return sum(self.spend.values(), Spend())

    def seconds(self, now: float) -> float:
        """How long it was worked on: time in which no engine ran does not count."""
        until = self.ended_at if self.ended_at is not None else now
        return self.active_s + (max(0.0, until - self.engine_since) if self.engine_since is not None else 0.0)

    def seconds_at(self, subtask: SubtaskState, now: float) -> float:
        """How long attempts at a subtask took; of the one under way, since this engine began."""
        since = self.engine_since if self.engine_since is not None else now
        return sum(
            attempt.ended_at - attempt.started_at
            if attempt.ended_at is not None
            else max(0.0, now - max(attempt.started_at, since))
            for attempt in subtask.attempts
        )

    def underway(self) -> Iterator[tuple[SubtaskState, Attempt]]:
        """Attempts that have not ended: running, being verified, landing."""
        for subtask in self.subtasks.values():
            if (attempt := subtask.current) is not None:
                yield subtask, attempt

    def running(self) -> list[tuple[SubtaskState, Attempt]]:
        """Attempts that hold one of the run's worker places."""
        return [(s, attempt) for s, attempt in self.underway() if attempt.commit is None and attempt.worker != PLANNER]

    def working(self) -> int:
        """Agents in conversation or at work right now."""
        return sum(attempt.working for _, attempt in self.running())

    def open_questions(self) -> list[Question]:
        return [question for question in self.questions.values() if question.answer is None]
