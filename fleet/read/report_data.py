"""The data of a report, a pure function of the facts of a run. Independent of its presentation.

Times are in seconds of active time. Interruptions do not count, so a resumed run looks like an uninterrupted one.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Reviewing
from fleet.core.policy.requests import objections, open_for_approval, rules_text
from fleet.core.state.state import STRATEGIES, Incident, Review, RunState
from fleet.core.state.status import OVER, Progress, Status, progress, status_of, statuses
from fleet.read.agent_rows import NodeUseView
from fleet.read.incident_view import IncidentCounts, IncidentView, incident_views, rate_of
from fleet.read.plan_graph import wave_parts
from fleet.read.question_view import InstructionView, NeedKind, QuestionView, ReviewsView, instruction_views
from fleet.read.run import status_view
from fleet.read.run_view import BaseView, RunStatus, StatusView, TokensView, base_view

# ---- proof -----------------------------------------------------------------------------------------------------------
# The verification of landed work: the gate, and the criteria of each subtask, which ran again on the merged tree.


@dataclass(frozen=True, slots=True)
class Proven:
    """A criterion of a landed subtask."""

    subtask: SubtaskId
    criterion: str
    """The text of the criterion."""
    command: str | None
    """The command, or the subject of a review. None for a configured check."""
    failed_before: bool
    """Whether it failed before the work. Otherwise it is a guard, which passed before as well."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The basis of the verdicts in a run."""

    gate: str | None
    """The project's gate. Empty without a gate, and None if it was not recorded."""
    criteria: Sequence[Proven]


def proof_of(state: RunState) -> Proof:
    criteria = [
        Proven(spec.id, check.criterion, check.shown if check.run or check.review else None, check.fails_before)
        for spec in state.plan.subtasks
        if state.subtasks[spec.id].landed is not None
        for check in spec.acceptance
    ]
    return Proof(state.gate_command, criteria)


# ---- pictures --------------------------------------------------------------------------------------------------------
# The data of two charts: all attempts on a timeline, and the plan as a graph.


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt on the timeline."""

    number: int
    from_s: float
    to_s: float | None
    landed: bool | None
    """None while it is running, and if it was stopped."""


@dataclass(frozen=True, slots=True)
class SubtaskSpans:
    """All attempts at a subtask."""

    id: SubtaskId
    attempts: tuple[AttemptSpan, ...]


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A subtask in the graph of the plan."""

    id: SubtaskId
    title: str
    needs: tuple[SubtaskId, ...]
    area: SubtaskId | None
    """The area of the planner that created it."""
    status: Status


def attempt_spans(state: RunState, seconds_at: Callable[[float], float]) -> list[SubtaskSpans]:
    """The attempts by subtask, in order of their start. Times are in seconds of active time."""
    spans = [
        SubtaskSpans(
            subtask.id,
            tuple(
                AttemptSpan(
                    attempt.number,
                    seconds_at(attempt.started_at),
                    seconds_at(attempt.ended_at) if attempt.ended_at is not None else None,
                    True if attempt.landed else False if attempt.failure is not None else None,
                )
                for attempt in subtask.attempts
            ),
        )
        for subtask in state.subtasks.values()
        if subtask.attempts
    ]
    return sorted(spans, key=lambda each: each.attempts[0].from_s)


def plan_waves(state: RunState, now: float) -> Sequence[Sequence[PlanNode]]:
    """The subtasks in waves. Each depends only on earlier waves."""
    return [[PlanNode(*rest, status_of(state, rest[0], now)) for rest in wave] for wave in wave_parts(state)]


# ---- said ------------------------------------------------------------------------------------------------------------
# The last thinking summaries of each agent. Their text is untrusted.


Point = tuple[float, float]
"""A time in seconds of active time, and a value."""
MOST_AGENTS = 200  # conversations in a report
LAST = 6  # kept summaries per conversation


@dataclass(frozen=True, slots=True)
class ThinkingSummary:
    """A summary by an agent, with its time."""

    at_s: float
    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class AgentSummaries:
    """The last summaries of an agent: of an attempt, or of a planner call."""

    subtask: SubtaskId | None
    """The subtask, or the area of a planner. None for the run's planner."""
    number: int
    """The number of the attempt or of the planner call."""
    role: f.Role
    model: str
    sayings: Sequence[ThinkingSummary]
    earlier: int
    """Number of earlier summaries that were left out."""


class _Heard:
    def __init__(self, model: str) -> None:
        self.model, self.count = model, 0
        self.sayings: deque[ThinkingSummary] = deque(maxlen=LAST)


@dataclass(frozen=True, slots=True)
class SummaryCollector:
    """Collects summaries. Keeps only the first agents if there are too many."""

    _heard: dict[tuple[f.Role, SubtaskId | None, int], _Heard] = field(default_factory=dict)
    left_out: set[tuple[f.Role, SubtaskId | None, int]] = field(default_factory=set)

    def take(self, fact: f.Fact, state: RunState) -> None:
        if not isinstance(fact, f.ModelCalled) or not fact.said.strip():
            return
        key = (fact.role, fact.subtask or fact.area, fact.attempt or fact.call or 0)
        if key not in self._heard:
            if len(self._heard) >= MOST_AGENTS:
                self.left_out.add(key)
                return
            self._heard[key] = _Heard(fact.model)
        heard = self._heard[key]
        if heard.sayings and heard.sayings[-1].text == fact.said:
            return
        heard.count += 1
        heard.sayings.append(ThinkingSummary(state.seconds(fact.at), fact.turn, fact.said))

    def talks(self) -> list[AgentSummaries]:
        return [
            AgentSummaries(subtask, number, role, heard.model, tuple(heard.sayings), heard.count - len(heard.sayings))
            for (role, subtask, number), heard in self._heard.items()
        ]


# ---- timeline --------------------------------------------------------------------------------------------------------
# The lines of a report over active time: agents, landed work and cost.


STEPS = (
    *(f.WorkerStarted, f.AttemptCommitted, f.AttemptFailed, f.BatchTested, f.ModelCalled, f.PlanRevised, f.RunStarted),
    *(f.EngineStarted, f.EngineStopped, f.CancelRequested, f.RunEnded),
)
"""The facts that can change a line of the timeline."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lines over active time."""

    agents: list[Point] = field(default_factory=list)
    landed: list[Point] = field(default_factory=list)
    planned: list[Point] = field(default_factory=list)
    cost: dict[str, list[Point]] = field(default_factory=dict)
    """Accumulated cost in USD, by role."""
    resumed: list[float] = field(default_factory=list)

    def take(self, fact: f.Fact, state: RunState) -> None:
        if not isinstance(fact, STEPS):
            return
        at = state.seconds(fact.at)
        if isinstance(fact, f.EngineStarted) and fact.epoch > 1:
            self.resumed.append(at)
        if isinstance(fact, f.ModelCalled):
            line = self.cost.setdefault(fact.role, [(0.0, 0.0)])
            line.append((at, line[-1][1] + (fact.dollars or 0.0)))
            return
        landed = progress(state)
        _step(self.agents, at, 0 if state.engine_since is None else state.working())
        _step(self.landed, at, landed.done)
        _step(self.planned, at, landed.total)


def _step(line: list[Point], at: float, value: float) -> None:
    if not line or line[-1][1] != value:
        line.append((at, float(value)))


# ---- report data -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LandedSubtask:
    """A landed subtask."""

    id: SubtaskId
    title: str
    commit: Sha | None
    """None if it is done without changing a file."""
    attempts: int
    strategy: f.Strategy
    worker: str
    node: str
    """The node of its last attempt. Empty for the manager's machine."""
    model: str | None
    files: int
    dollars: float | None
    at_s: float | None
    needed_by: tuple[SubtaskId, ...]
    """Landed subtasks that depend on it."""


@dataclass(frozen=True, slots=True)
class OpenSubtask:
    """A subtask that did not land."""

    id: SubtaskId
    title: str
    status: Status
    why: str


@dataclass(frozen=True, slots=True)
class IncidentSpan:
    """An incident on the timeline."""

    number: int
    subtask: SubtaskId
    kind: f.FailureKind
    summary: str
    failures: int
    from_s: float
    to_s: float | None
    recovered: bool | None
    strategy: f.Strategy | None


@dataclass(frozen=True, slots=True)
class StrategyCounts:
    """The results of the attempts of one strategy."""

    strategy: f.Strategy
    attempts: int
    landed: int
    recovered: int
    """Incidents recovered by the strategy."""
    closed: int
    """Closed incidents that used the strategy."""


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """The results of incidents of one class."""

    kind: f.FailureKind
    opened: int
    recovered: int
    unrecovered: int


@dataclass(frozen=True, slots=True)
class Spending:
    """The usage of a role."""

    name: str
    calls: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    dollars: float | None


@dataclass(frozen=True, slots=True)
class ReviewSummary:
    """The reviewer of the plan, the rules and the verdicts."""

    by: Reviewing | None
    """None if the run started before review rules existed."""
    rules: Sequence[str]
    words: Sequence[Review]
    """Approvals and rejections, with their times."""
    waiting: Mapping[SubtaskId, Sequence[str]]
    """The subtasks that wait for approval, with the rules that they break."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """All data of a report."""

    run: str
    state: RunStatus
    why: str
    goal: str
    synthesis: str | None
    repository: str
    base: Sha
    base_name: str
    tip: Sha
    branch: str | None
    """The result branch. None until a commit is published."""
    simulated: bool
    rehearsal: bool
    """Whether it is a rehearsal."""
    for_real: bool
    """Whether it is a rehearsal for real, in which planner and workers redo past commits."""
    sandbox: str
    started_at: float
    seconds: float
    resumes: int
    versions: int
    attempts: int
    peak: int
    workers: int
    progress: Progress
    commits: int
    commits_tested: int
    """Number of landed commits whose own tree was tested."""
    batches: int
    red_batches: int
    recovered: int
    closed: int
    dollars: float | None
    dollars_a_landed: float | None
    landed: Sequence[LandedSubtask]
    proof: Proof
    open: Sequence[OpenSubtask]
    questions: Sequence[QuestionView]
    reviewed: ReviewSummary
    warnings: Sequence[str]
    nodes: Sequence[NodeUseView]
    """The nodes of the run."""
    red_base: Sequence[str]
    base_check: BaseView
    """The setup command and the gate on the base, for a refused run."""
    instructions: Mapping[SubtaskId, Sequence[InstructionView]]
    """The instructions from people, by subtask."""
    tried: Sequence[StrategyCounts]
    kinds: Sequence[ClassCounts]
    spending: Sequence[Spending]
    incidents: Sequence[IncidentSpan]
    stories: Sequence[IncidentView]
    """The incidents in detail, from the first failure to the end."""
    timeline: Timeline
    estimates: Sequence[f.SubtaskEstimate]
    """Estimates for the open subtasks, from comparable landed ones."""
    reviews: ReviewsView | None
    """Reviews of changes by other models."""
    talks: Sequence[AgentSummaries]
    """The last summaries of agents."""
    talks_left_out: int
    """Number of further agents with summaries."""
    spans: Sequence[SubtaskSpans]
    """All attempts on the timeline, by subtask."""
    waves: Sequence[Sequence[PlanNode]]
    """The plan in waves. Each subtask depends only on earlier waves."""
    needs: Sequence[NeedKind]
    """The pending requests to a person."""
    ends_in_s: float | None
    """Seconds until the run ends without a response."""


def report_data(facts: Iterable[f.Fact], now: float, *, alive: bool) -> ReportData | None:
    """The report of a run. None if it has not started."""
    told = _Told()
    state = told.take_all(facts)
    return _report_data(state, told, now if alive else state.last_at, alive=alive) if state is not None else None


@dataclass(frozen=True, slots=True)
class _Told:
    """Data that is only in the facts. Times are in seconds of active time."""

    timeline: Timeline = field(default_factory=Timeline)
    talks: SummaryCollector = field(default_factory=SummaryCollector)
    landed_at: dict[SubtaskId, float] = field(default_factory=dict)
    clock: list[Point] = field(default_factory=list)
    """The active time at each fact."""

    def take_all(self, facts: Iterable[f.Fact]) -> RunState | None:
        """Return the state after all facts. None without facts."""
        state: RunState | None = None
        for fact in facts:
            state = evolve(state, fact)
            self.timeline.take(fact, state)
            self.talks.take(fact, state)
            self.clock.append((fact.at, state.seconds(fact.at)))
            if isinstance(fact, f.BatchTested):
                self.landed_at.update((member.subtask, self.clock[-1][1]) for member in fact.landed)
        self.clock.sort()
        return state


def _report_data(state: RunState, told: _Told, now: float, *, alive: bool) -> ReportData:
    status = status_view(state, now, alive=alive)
    counts, dollars = status.incidents, status.cost_dollars
    return ReportData(
        run=status.run,
        state=status.state,
        why=status.why,
        goal=status.goal,
        synthesis=state.planning.synthesis,
        repository=status.repository,
        base=status.base,
        base_name=state.base_name,
        tip=status.tip,
        branch=status.result_branch,
        simulated=status.simulated,
        rehearsal=status.rehearsal,
        for_real=status.for_real,
        sandbox=status.sandbox,
        started_at=status.started_at,
        seconds=state.seconds(now),
        resumes=max(0, state.epoch - 1),
        versions=len(state.versions),
        attempts=state.attempts,
        peak=status.agents.peak,
        workers=status.agents.limit,
        progress=status.landed,
        commits=status.commits,
        commits_tested=status.commits_tested,
        batches=status.landing.batches,
        red_batches=status.landing.red,
        recovered=counts.recovered,
        closed=counts.closed,
        dollars=dollars,
        dollars_a_landed=dollars / status.commits if dollars is not None and status.commits else None,
        landed=_landed(state, told.landed_at),
        proof=proof_of(state),
        open=_open(state, now),
        questions=status.questions,
        reviewed=_reviewed(state, status),
        warnings=status.warnings,
        nodes=status.nodes,
        red_base=status.never_passed,
        base_check=base_view(state),
        instructions={each.id: instruction_views(each) for each in state.subtasks.values() if each.instructions},
        tried=_tried(state, counts),
        kinds=[ClassCounts(kind, row.opened, row.recovered, row.unrecovered) for kind, row in counts.by_class.items()],
        spending=[_spending(role, used, status.cost_by_role[role]) for role, used in status.tokens.items()],
        incidents=[_span(incident, told.clock) for incident in state.incidents],
        stories=incident_views(state, now),
        timeline=told.timeline,
        estimates=status.estimates,
        reviews=status.change_reviews,
        talks=told.talks.talks(),
        talks_left_out=len(told.talks.left_out),
        spans=attempt_spans(state, lambda at: _seconds_at(at, told.clock)),
        waves=plan_waves(state, now),
        needs=status.needs,
        ends_in_s=status.ends_in_s,
    )


def _landed(state: RunState, landed_at: dict[SubtaskId, float]) -> list[LandedSubtask]:
    needed: dict[SubtaskId, list[SubtaskId]] = {}
    for spec in state.plan.subtasks:
        if state.subtasks[spec.id].landed is not None:
            for need in spec.depends_on:
                needed.setdefault(need, []).append(spec.id)
    parts = []
    for spec in state.plan.subtasks:
        subtask = state.subtasks[spec.id]
        last = subtask.last
        if subtask.landed is None or last is None:
            continue
        parts.append(
            LandedSubtask(
                id=spec.id,
                title=spec.title,
                commit=None if subtask.unchanged else subtask.landed,
                attempts=len(subtask.attempts),
                strategy=last.strategy,
                worker=last.worker,
                node=last.node,
                model=last.model,
                files=len(last.paths),
                dollars=subtask.spend.dollars,
                at_s=landed_at.get(spec.id),
                needed_by=tuple(needed.get(spec.id, ())),
            )
        )
    return sorted(parts, key=lambda part: part.at_s or 0.0)


def _open(state: RunState, now: float) -> list[OpenSubtask]:
    where, unapproved = statuses(state, now), frozenset(open_for_approval(state))
    return [
        OpenSubtask(spec.id, spec.title, where[spec.id], _why(state, spec.id, unapproved))
        for spec in state.plan.subtasks
        if where[spec.id] not in OVER or where[spec.id] == "dropped"
    ]


def _why(state: RunState, id_: SubtaskId, unapproved: Container[SubtaskId]) -> str:
    subtask = state.subtasks[id_]
    if subtask.dropped is not None:
        return subtask.dropped
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
    if failures:
        return f"{failures[-1].kind}: {failures[-1].summary}"
    return "; ".join(("waits for approval", *objections(state, id_))) if id_ in unapproved else ""


def _reviewed(state: RunState, status: StatusView) -> ReviewSummary:
    return ReviewSummary(
        by=state.policy.reviewing,
        rules=rules_text(state.policy.rules),
        words=status.reviews,
        waiting=status.waiting_for_approval,
    )


def _tried(state: RunState, counts: IncidentCounts) -> list[StrategyCounts]:
    attempts, landed = Counter[f.Strategy](), Counter[f.Strategy]()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            attempts[attempt.strategy] += 1
            landed[attempt.strategy] += attempt.landed is not None
    order: tuple[f.Strategy, ...] = ("first", *STRATEGIES, "human")
    closed = {name: counts.by_strategy.get(name, rate_of(())) for name in order}
    return [
        StrategyCounts(name, attempts[name], landed[name], rate.recovered, rate.closed)
        for name, rate in closed.items()
        if attempts[name] or rate.closed
    ]


def _spending(role: str, used: TokensView, dollars: float | None) -> Spending:
    read = used.input + used.cache_read + used.cache_write
    return Spending(role, used.calls, read, used.cache_read, used.output, dollars)


def _span(incident: Incident, clock: Sequence[Point]) -> IncidentSpan:
    return IncidentSpan(
        number=incident.number,
        subtask=incident.subtask,
        kind=incident.kind,
        summary=incident.troubles[0].summary,
        failures=len(incident.troubles),
        from_s=_seconds_at(incident.opened_at, clock),
        to_s=_seconds_at(incident.closed_at, clock) if incident.closed_at is not None else None,
        recovered=incident.recovered,
        strategy=incident.strategy,
    )


def _seconds_at(at: float, clock: Sequence[Point]) -> float:
    """Convert the time of a fact to seconds of active time."""
    index = bisect_left(clock, (at, 0.0))
    return clock[index][1] if index < len(clock) else 0.0
