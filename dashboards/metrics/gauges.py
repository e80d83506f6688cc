"""What is true now, as samples: taken from the states of runs when they are asked for, never kept."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from dashboards.metrics.catalog import AGENT_STATES, CONDITIONS, MOST_NAMES, MOST_RUNS, RUN_STATES, WINDOWS
from dashboards.metrics.tally import Tally
from fleet import __version__
from fleet.core.approval import awaits_approval
from fleet.core.budget import run_budgets
from fleet.core.standing import Standing, standings
from fleet.core.state import RunState
from fleet.core.views import run_word
from fleet.ports import CallGauges

Sample = tuple[str, tuple[str, ...], float]
"""A metric, the values of its labels, and its value."""
MOVING = frozenset({"planning", "running", "draining"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One run that has not been forgotten."""

    state: RunState
    alive: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything there is to know at one moment."""

    now: float
    open: Sequence[Seen]
    """Runs that have not ended."""
    ended: Mapping[str, int]
    """Those that have, by ending."""
    unreadable: int = 0
    journal_lag_s: float = 0.0
    journal_bytes: int = 0
    free_bytes: int = 0
    calls: CallGauges | None = None
    """What only the process that works on a run can know."""


def samples(picture: Picture, tally: Tally) -> Iterator[Sample]:
    yield "fleet_build", (__version__,), 1
    yield from _runs(picture)
    yield from _work(picture)
    yield from _recovery(picture, tally)
    yield from _landing(picture, tally)
    yield from _program(picture)
    latest = sorted(picture.open, key=lambda seen: -seen.state.started_at)[:MOST_RUNS]
    for seen in latest:
        yield from _run(seen, picture.now)


def _runs(picture: Picture) -> Iterator[Sample]:
    words = Counter(run_word(seen.state, picture.now, alive=seen.alive) for seen in picture.open)
    counts = words + Counter(picture.ended)
    for state in RUN_STATES:
        yield "fleet_runs", (state,), counts[state]
    yield "fleet_runs_unreadable", (), picture.unreadable
    yield "fleet_questions_open", (), sum(len(seen.state.open_questions()) for seen in picture.open)


def _run(seen: Seen, now: float) -> Iterator[Sample]:
    state, run = seen.state, (seen.state.run,)
    asks = bool(state.open_questions()) or awaits_approval(state)
    yield "fleet_run_elapsed_seconds", run, state.seconds(now if seen.alive else state.last_at)
    if run_word(state, now, alive=seen.alive) in MOVING and not (asks and not any(state.underway())):
        yield "fleet_run_last_fact_timestamp_seconds", run, state.last_at
    yield "fleet_run_needs_human", run, asks
    yield "fleet_run_base_red", run, bool(state.red_base)
    yield "fleet_run_cost_dollars", run, state.spent.priced_dollars
    if state.policy.budget_dollars is not None:
        yield "fleet_run_budget_dollars", run, state.policy.budget_dollars
    used = budget_used(state, now if seen.alive else state.last_at)
    if used is not None:
        yield "fleet_run_budget_used_ratio", run, used


def budget_used(state: RunState, now: float) -> float | None:
    """The largest share of its budgets that is gone; None where nothing is limited."""
    return max((budget.gone / budget.limit for budget in run_budgets(state, now)), default=None)


def _work(picture: Picture) -> Iterator[Sample]:
    agents, subtasks = Counter[str](), Counter[str]()
    for seen in picture.open:
        subtasks.update(standings(seen.state, picture.now).values())
        if seen.alive:
            agents.update(_agents(seen.state))
    for state in AGENT_STATES:
        yield "fleet_agents", (state,), agents[state]
    for status in get_args(Standing):
        yield "fleet_subtasks", (status,), subtasks[status]
    yield "fleet_agents_limit", (), sum(seen.state.policy.workers for seen in picture.open if seen.alive)
    yield "fleet_agents_peak", (), max((seen.state.peak for seen in picture.open), default=0)
    yield "fleet_worktree_leases", (), agents["working"]


def _agents(state: RunState) -> Iterator[str]:
    if state.planning.open is not None:
        yield "planning"
    for _, attempt in state.underway():
        if attempt.commit is not None:
            yield "landing" if attempt.verified else "checking"
        else:
            yield "working" if attempt.working else "starting"


def _recovery(picture: Picture, tally: Tally) -> Iterator[Sample]:
    open_ = sum(incident.closed_at is None for seen in picture.open for incident in seen.state.incidents)
    yield "fleet_incidents_open", (), open_
    outcomes = Counter[str]()
    for (_, outcome), count in tally.counters["fleet_incidents_closed"].items():
        outcomes[outcome] += count
    if outcomes.total():
        yield "fleet_recovery_ratio", (), outcomes["recovered"] / outcomes.total()
    for outcome, recent in tally.incidents.items():
        for window, seconds in WINDOWS.items():
            yield "fleet_recent_incidents", (window, outcome), recent.within(seconds, picture.now)


def _landing(picture: Picture, tally: Tally) -> Iterator[Sample]:
    for window, seconds in WINDOWS.items():
        yield "fleet_recent_commits", (window,), tally.commits.within(seconds, picture.now)
    yield "fleet_landing_queue", (), sum(_queued(seen.state) for seen in picture.open)


def _queued(state: RunState) -> int:
    """In the queue, or out of it for a test alone."""
    alone = {member.subtask for probe in state.landing.probes if probe.alone for member in probe.members}
    return len(alone | set(state.landing.queue))


def _program(picture: Picture) -> Iterator[Sample]:
    yield "fleet_journal_lag_seconds", (), picture.journal_lag_s
    yield "fleet_journal_bytes", (), picture.journal_bytes
    yield "fleet_state_free_bytes", (), picture.free_bytes
    if picture.calls is not None:
        yield from _calls(picture.calls)


def _calls(calls: CallGauges) -> Iterator[Sample]:
    families = sorted({granted.family for granted in calls.granted})[:MOST_NAMES]
    for granted in calls.granted:
        if granted.family in families and granted.limit_a_minute > 0:
            left = granted.left / granted.limit_a_minute
            yield "fleet_model_headroom_ratio", (granted.family, granted.counted), left
    shut = set(calls.shut.values()) or {"up"}
    for condition in CONDITIONS:
        yield "fleet_model_breaker", (condition,), condition in shut
    yield "fleet_model_calls_underway", (), calls.underway
    yield "fleet_model_calls_waiting", (), calls.waiting
    for fault, count in calls.faults.items():
        yield "fleet_model_faults", (fault,), count
