"""The figures of a run: those of its status, and those that are redrawn many times a second.

Every UI shows the status figures that list it in `faces`, formatted by kind. By default, a figure is a key of
`fleet status --json`, a line of its text, a part of the terminal header, a number on the web page and a gauge
`fleet_run_NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from fleet.core.base.usage import Spend
from fleet.core.policy.budget import run_budgets
from fleet.core.policy.endings import ends_unanswered_at
from fleet.core.state.state import RunState, listed
from fleet.core.state.status import Progress, progress
from fleet.read.incident_view import RateCounts, rate_of

if TYPE_CHECKING:
    from fleet.read.run import RunSnapshot

Face = Literal["json", "text", "terminal", "web", "metrics"]
Kind = Literal["count", "part", "rate", "dollars", "seconds", "moment", "flag", "share"]
"""`part` and `rate` are two numbers: a count and its total."""
Value = float | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a run's status."""

    name: str
    """The key in `--json`, and its metric name after `fleet_run_`."""
    kind: Kind
    help: str
    value: Callable[[RunSnapshot], Value | None]
    """Returns None without a value."""
    note: Callable[[RunSnapshot], str] | None = None
    """Returns a note for small print."""
    faces: tuple[Face, ...] = get_args(Face)

    @property
    def title(self) -> str:
        """The display name."""
        return self.name.replace("_", " ")

    def note_of(self, run: RunSnapshot) -> str:
        return self.note(run) if self.note is not None else ""


def _gauge(name: str, kind: Kind, help_: str, value: Callable[[RunSnapshot], Value | None]) -> Figure:
    """A figure that only metrics export."""
    return Figure(name, kind, help_, value, faces=("metrics",))


FIGURES = (
    Figure("attempts", "count", "Number of attempts started.", lambda run: run.state.attempts, faces=("json", "text")),
    Figure(
        "agents",
        "part",
        "Number of running agents, and the limit.",
        lambda run: (run.figures.working, run.figures.workers),
        note=lambda run: f"peak {run.figures.peak}",
        faces=("terminal", "web"),
    ),
    Figure(
        "recovered",
        "rate",
        "Incidents that recovered without human help, out of all closed incidents.",
        lambda run: (run.figures.recovered.recovered, run.figures.recovered.closed),
        note=lambda run: f"{run.figures.open_incidents} open",
        faces=("web",),
    ),
    _gauge("started_timestamp_seconds", "moment", "Unix time at which the run started.", lambda run: run.started_at),
    _gauge(
        "elapsed_seconds",
        "seconds",
        "Active duration of the run, in seconds.",
        lambda run: run.state.seconds(run.seen_at),
    ),
    _gauge("landed_subtasks", "count", "Number of landed subtasks.", lambda run: run.landed.done),
    _gauge("subtasks", "count", "Number of subtasks planned to land.", lambda run: run.landed.total),
    _gauge(
        "last_fact_timestamp_seconds",
        "moment",
        "Unix time of the last event in an active run that is not waiting for a human.",
        lambda run: run.last_at if run.moves else None,
    ),
    _gauge(
        "needs_human",
        "flag",
        "Whether the run needs a human: an answer, an approval, a larger budget, or a resume.",
        lambda run: bool(run.needs),
    ),
    _gauge(
        "interrupted", "flag", "Whether the run is unfinished and no engine is running it.", lambda run: not run.alive
    ),
    _gauge(
        "answer_deadline_timestamp_seconds",
        "moment",
        "Unix time at which a run that is waiting for a human will end without an answer.",
        lambda run: ends_unanswered_at(run.state, run.now) if run.alive else None,
    ),
    _gauge(
        "base_red",
        "flag",
        "Whether the gate failed on the base commit and still fails.",
        lambda run: bool(run.state.red_base),
    ),
    _gauge(
        "cost_dollars",
        "dollars",
        "Cost of the run in dollars, as far as prices are known.",
        lambda run: run.state.spent.priced_dollars,
    ),
    _gauge(
        "budget_dollars",
        "dollars",
        "Budget of the run in dollars, if it has one.",
        lambda run: run.figures.budget_dollars,
    ),
    _gauge(
        "budget_used_ratio",
        "share",
        "Used fraction of the run's most constrained budget.",
        lambda run: max((each.used / each.limit for each in run_budgets(run.state, run.seen_at)), default=None),
    ),
)


def figures_of(face: Face) -> tuple[Figure, ...]:
    """The figures for a UI."""
    return tuple(figure for figure in FIGURES if face in figure.faces)


def one_number(value: Value) -> float:
    """Return the value itself, or the first of two numbers."""
    return value[0] if isinstance(value, tuple) else value


class FigureValues(dict[str, Value | None]):
    """The figures of a status by name. In `--json`, each is a top-level key."""


def figure_values(face: Face, run: RunSnapshot) -> FigureValues:
    """The figures of a run for a UI."""
    return FigureValues({figure.name: figure.value(run) for figure in figures_of(face)})


# ---- figures that are redrawn many times a second --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of a run at a moment."""

    goal: str
    """The goal as given."""
    plan_goal: str
    """The goal in the plan, or as given without a plan."""
    repository: str
    plan_version: int
    """0 without a plan."""
    seconds: float
    """The active time."""
    sandbox: str
    simulated: bool
    rehearsal: bool
    """Whether it is a rehearsal."""
    for_real: bool
    """Whether it is a rehearsal for real, in which planner and workers redo past commits."""
    is_over: bool
    is_paused: bool
    rests: bool
    """Whether it is paused by `run.not_between`."""
    is_published: bool
    """Whether there is a result branch."""
    subtasks: int
    """All subtasks that were ever planned."""
    landed: Progress
    working: int
    """Running agents. 0 if no process is running the run."""
    workers: int
    """The maximum number of agents at the same time."""
    peak: int
    """The peak number of agents at the same time."""
    slots: int
    """The maximum number of batches tested at the same time."""
    queued: int
    recovered: RateCounts
    open_incidents: int
    has_nodes: bool
    nodes: int
    """Nodes, including those of a cluster."""
    spent: Spend
    budget_dollars: float | None
    budget_minutes: float | None


def run_figures(state: RunState, now: float, *, alive: bool) -> RunFigures:
    return RunFigures(
        goal=state.goal,
        plan_goal=state.plan.goal or state.goal,
        repository=state.repository,
        plan_version=state.plan.version,
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
        peak=state.peak,
        slots=state.policy.slots,
        queued=len(state.landing.queue),
        recovered=rate_of(state.incidents),
        open_incidents=len(state.troubled),
        has_nodes=bool(state.nodes),
        nodes=len(listed(state.nodes)),
        spent=state.spent,
        budget_dollars=state.policy.budget_dollars,
        budget_minutes=state.policy.budget_minutes,
    )
