"""What a run is and how far it is: figures that cost nothing, for what is drawn many times a second."""

from dataclasses import dataclass

from fleet.core.base.ids import RunId
from fleet.core.base.usage import Spend
from fleet.core.state.state import RunState, listed
from fleet.core.state.status import Progress, progress
from fleet.read.incident_view import RateCounts, rate_of


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run at one moment, in figures."""

    run: RunId
    goal: str
    """As it was given."""
    plan_goal: str
    """As the plan says it; without a plan, as it was given."""
    repository: str
    plan_version: int
    """0 before there is a plan."""
    started_at: float
    last_at: float
    """When something happened last."""
    seconds: float
    """How long engines worked on it."""
    sandbox: str
    simulated: bool
    rehearsal: bool
    """Whether it is about history."""
    for_real: bool
    """Whether it is a rehearsal in which planner and workers did history's commits again."""
    is_over: bool
    is_paused: bool
    rests: bool
    """Whether it is paused for the hours in which it starts nothing."""
    is_published: bool
    """Whether something landed that can be taken."""
    subtasks: int
    """Subtasks that were ever planned."""
    landed: Progress
    working: int
    """Agents at work now; 0 if no process runs it."""
    workers: int
    """The most agents at once."""
    queued: int
    recovered: RateCounts
    open_incidents: int
    has_nodes: bool
    nodes: int
    """Machines beside this one, those of a cluster included."""
    spent: Spend
    budget_dollars: float | None
    budget_minutes: float | None


def run_figures(state: RunState, now: float, *, alive: bool) -> RunFigures:
    return RunFigures(
        run=state.run,
        goal=state.goal,
        plan_goal=state.plan.goal or state.goal,
        repository=state.repository,
        plan_version=state.plan.version,
        started_at=state.started_at,
        last_at=state.last_at,
        seconds=state.seconds(now),
        sandbox=state.sandbox,
        simulated=state.simulated,
        rehearsal=state.rehearsal is not None,
        for_real=state.for_real,
        is_over=state.ended,
        is_paused=state.paused,
        rests=state.rests,
        is_published=bool(state.published),
        subtasks=len(state.subtasks),
        landed=progress(state),
        working=state.working() if alive else 0,
        workers=state.policy.workers,
        queued=len(state.landing.queue),
        recovered=rate_of(state.incidents),
        open_incidents=len(state.troubled),
        has_nodes=bool(state.nodes),
        nodes=len(listed(state.nodes)),
        spent=state.spent,
        budget_dollars=state.policy.budget_dollars,
        budget_minutes=state.policy.budget_minutes,
    )
