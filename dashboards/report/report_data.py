"""What a report tells, as figures: a pure function of the facts of a run. Knows nothing of how it is shown.

Times are seconds at work: hours in which no engine ran do not count, so a run that was resumed reads like one.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboards.report.reviewed import Reviewed, reviewed
from fleet.core import facts as f
from fleet.core.approval import awaited, stopped_by
from fleet.core.evolve import evolve
from fleet.core.ids import Sha, SubtaskId
from fleet.core.incidents import STRATEGIES, Incident, Rate, Rates, rates_of
from fleet.core.standing import OVER, Standing, standings
from fleet.core.state import RunState
from fleet.core.stories import stories, story_view
from fleet.core.usage import Spend
from fleet.core.views import commits_tested, run_word, spend_by_role

Point = tuple[float, float]
STEPS = (
    *(f.WorkerStarted, f.AttemptCommitted, f.AttemptFailed, f.BatchTested, f.ModelCalled, f.PlanRevised, f.RunStarted),
    *(f.EngineStarted, f.EngineStopped, f.CancelRequested, f.RunEnded),
)
"""The facts after which a line of the timeline may stand elsewhere."""


@dataclass(frozen=True, slots=True)
class LandedPart:
    """A subtask that landed, and what taking it back would mean."""

    id: SubtaskId
    title: str
    commit: Sha | None
    """None: it is done, and no file changed."""
    attempts: int
    strategy: f.Strategy
    worker: str
    model: str | None
    files: int
    dollars: float | None
    at_s: float | None
    needed_by: tuple[SubtaskId, ...]
    """What landed on top of it and builds on it."""


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A subtask that did not land."""

    id: SubtaskId
    title: str
    standing: Standing
    why: str


@dataclass(frozen=True, slots=True)
class Span:
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
class Tried:
    """What became of the attempts of one strategy."""

    strategy: f.Strategy
    attempts: int
    landed: int
    recovered: int
    """Incidents that it recovered."""
    closed: int
    """Incidents for which it was chosen, and that closed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What became of the incidents of one class."""

    kind: f.FailureKind
    opened: int
    recovered: int
    unrecovered: int


@dataclass(frozen=True, slots=True)
class Spending:
    """What one role used."""

    name: str
    calls: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    dollars: float | None


@dataclass(frozen=True, slots=True)
class Asked:
    """Something that waits for a human."""

    id: str
    about: SubtaskId | None
    question: str
    options: tuple[str, ...]


@dataclass
class Timeline:
    """Lines over the time at work."""

    agents: list[Point] = field(default_factory=list)
    landed: list[Point] = field(default_factory=list)
    planned: list[Point] = field(default_factory=list)
    cost: dict[str, list[Point]] = field(default_factory=dict)
    """Dollars so far, by role."""
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
        _step(self.agents, at, 0 if state.engine_since is None else state.working())
        _step(self.landed, at, state.done)
        _step(self.planned, at, _planned(state))


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything a report tells."""

    run: str
    state: str
    why: str
    goal: str
    synthesis: str | None
    repository: str
    base: Sha
    base_name: str
    tip: Sha
    branch: str | None
    """The result branch, where something was published."""
    simulated: bool
    sandbox: str
    started_at: float
    seconds: float
    resumes: int
    versions: int
    attempts: int
    peak: int
    workers: int
    commits: int
    commits_tested: int
    """How many of them had their own tree tested."""
    batches: int
    red_batches: int
    recovered: int
    closed: int
    dollars: float | None
    dollars_a_landed: float | None
    landed: Sequence[LandedPart]
    open: Sequence[OpenPart]
    questions: Sequence[Asked]
    reviewed: Reviewed
    warnings: Sequence[str]
    red_base: Sequence[str]
    tried: Sequence[Tried]
    kinds: Sequence[Kind]
    spending: Sequence[Spending]
    incidents: Sequence[Span]
    stories: Sequence[dict[str, Any]]
    """Of the incidents, from failure to end."""
    timeline: Timeline


def figures(facts: Iterable[f.Fact], now: float, *, alive: bool) -> Figures | None:
    """The report of a run; None where nothing has begun."""
    state: RunState | None = None
    timeline, landed_at = Timeline(), dict[SubtaskId, float]()
    clock: list[Point] = []
    for fact in facts:
        state = evolve(state, fact)
        timeline.take(fact, state)
        clock.append((fact.at, state.seconds(fact.at)))
        if isinstance(fact, f.BatchTested):
            landed_at.update((member.subtask, state.seconds(fact.at)) for member in fact.landed)
    if state is None:
        return None
    return _told(state, timeline, landed_at, _Clock(sorted(clock)), now if alive else state.last_at, alive=alive)


@dataclass(frozen=True, slots=True)
class _Clock:
    """From the time of a fact to seconds at work."""

    pairs: Sequence[Point]

    def __call__(self, at: float) -> float:
        index = bisect_left(self.pairs, (at, 0.0))
        return self.pairs[index][1] if index < len(self.pairs) else 0.0


def _told(
    state: RunState, timeline: Timeline, landed_at: dict[SubtaskId, float], clock: _Clock, now: float, *, alive: bool
) -> Figures:
    rates = rates_of(state.incidents)
    dollars = state.spent.dollars
    return Figures(
        run=state.run,
        state=run_word(state, now, alive=alive),
        why=state.ending_why,
        goal=state.plan.goal or state.goal,
        synthesis=state.planning.synthesis,
        repository=state.repository,
        base=state.base,
        base_name=state.base_name,
        tip=state.tip,
        branch=state.result_branch if state.published else None,
        simulated=state.simulated,
        sandbox=state.sandbox,
        started_at=state.started_at,
        seconds=state.seconds(now),
        resumes=max(0, state.epoch - 1),
        versions=len(state.versions),
        attempts=state.attempts,
        peak=state.peak,
        workers=state.policy.workers,
        commits=state.commits,
        commits_tested=commits_tested(state),
        batches=state.landing.batches,
        red_batches=state.landing.red,
        recovered=rates.total.recovered,
        closed=rates.total.closed,
        dollars=dollars,
        dollars_a_landed=dollars / state.commits if dollars is not None and state.commits else None,
        landed=_landed(state, landed_at),
        open=_open(state, now),
        questions=[Asked(q.id, q.about, q.text, q.options) for q in state.open_questions()],
        reviewed=reviewed(state),
        warnings=state.warnings,
        red_base=[check.command for check in state.red_base],
        tried=_tried(state, rates),
        kinds=_kinds(rates),
        spending=[_spending(role, spend) for role, spend in spend_by_role(state).items()],
        incidents=[_span(incident, clock) for incident in state.incidents],
        stories=[story_view(story) for story in stories(state, now)],
        timeline=timeline,
    )


def _landed(state: RunState, landed_at: dict[SubtaskId, float]) -> list[LandedPart]:
    needed: dict[SubtaskId, list[SubtaskId]] = {}
    for spec in state.plan.subtasks:
        if state.subtasks[spec.id].landed is not None:
            for need in spec.depends_on:
                needed.setdefault(need, []).append(spec.id)
    found = []
    for spec in state.plan.subtasks:
        subtask = state.subtasks[spec.id]
        last = subtask.last
        if subtask.landed is None or last is None:
            continue
        found.append(
            LandedPart(
                id=spec.id,
                title=spec.title,
                commit=None if subtask.unchanged else subtask.landed,
                attempts=len(subtask.attempts),
                strategy=last.strategy,
                worker=last.worker,
                model=last.model,
                files=len(last.paths),
                dollars=subtask.spend.dollars,
                at_s=landed_at.get(spec.id),
                needed_by=tuple(needed.get(spec.id, ())),
            )
        )
    return sorted(found, key=lambda part: part.at_s or 0.0)


def _open(state: RunState, now: float) -> list[OpenPart]:
    where = standings(state, now)
    return [
        OpenPart(spec.id, spec.title, where[spec.id], _why(state, spec.id))
        for spec in state.plan.subtasks
        if where[spec.id] not in OVER or where[spec.id] == "dropped"
    ]


def _why(state: RunState, id_: SubtaskId) -> str:
    subtask = state.subtasks[id_]
    if subtask.dropped is not None:
        return subtask.dropped
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
    if failures:
        return f"{failures[-1].kind}: {failures[-1].summary}"
    return "; ".join(("waits for approval", *stopped_by(state, id_))) if id_ in awaited(state) else ""


def _tried(state: RunState, rates: Rates) -> list[Tried]:
    attempts, landed = Counter[f.Strategy](), Counter[f.Strategy]()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            attempts[attempt.strategy] += 1
            landed[attempt.strategy] += attempt.landed is not None
    order: tuple[f.Strategy, ...] = ("first", *STRATEGIES, "human")
    none = Rate(0, 0)
    found = {name: rates.by_strategy.get(name, none) for name in order}
    return [
        Tried(name, attempts[name], landed[name], rate.recovered, rate.closed)
        for name, rate in found.items()
        if attempts[name] or rate.closed
    ]


def _kinds(rates: Rates) -> list[Kind]:
    return [
        Kind(kind, opened=opened, recovered=rate.recovered, unrecovered=rate.closed - rate.recovered)
        for kind, (opened, rate) in rates.by_class.items()
    ]


def _spending(role: str, spend: Spend) -> Spending:
    usage = spend.usage
    read = usage.input + usage.cache_read + usage.cache_write
    return Spending(role, spend.calls, read, usage.cache_read, usage.output, spend.dollars)


def _span(incident: Incident, clock: _Clock) -> Span:
    return Span(
        number=incident.number,
        subtask=incident.subtask,
        kind=incident.kind,
        summary=incident.troubles[0].summary,
        failures=len(incident.troubles),
        from_s=clock(incident.opened_at),
        to_s=clock(incident.closed_at) if incident.closed_at is not None else None,
        recovered=incident.recovered,
        strategy=incident.strategy,
    )


def _planned(state: RunState) -> int:
    """Subtasks that are to land: a split one stands for its parts, a dropped one for nothing."""
    return sum(
        not (subtask.parts or subtask.skipped) and subtask.dropped is None for subtask in state.subtasks.values()
    )


def _step(line: list[Point], at: float, value: float) -> None:
    if not line or line[-1][1] != value:
        line.append((at, float(value)))
