"""Gauges: samples of what is true now, taken from the states of runs at each scrape and never stored."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol, get_args

from dashboards.metrics.catalog import (
    AGENT_STATES,
    CONDITIONS,
    LABELS,
    MOST_NAMES,
    MOST_RUNS,
    NODE_STATES,
    RUN_STATES,
    WINDOWS,
)
from dashboards.metrics.tally import Tally, name_of
from fleet import __version__
from fleet.core.policy.budget import run_budgets
from fleet.core.policy.endings import ends_unanswered_at
from fleet.core.state.state import RunState, listed
from fleet.core.state.status import Status, agent_phases, progress, status_counts
from fleet.ports.agents import CallGauges
from fleet.read.nodes_view import node_occupancy, node_status, waiting_for_machines
from fleet.read.question_view import needed
from fleet.read.run_view import run_word

Sample = tuple[str, tuple[str, ...], float]
"""A metric, the values of its labels, and its value."""
MOVING = frozenset({"planning", "running", "draining"})


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has not ended."""

    state: RunState
    alive: bool


class EndedFigures(Protocol):
    """What a run that ended did."""

    @property
    def run(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def repository(self) -> str: ...
    @property
    def started_at(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def dollars(self) -> float: ...
    @property
    def landed(self) -> int: ...
    @property
    def subtasks(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RunsSnapshot:
    """All runs at one moment."""

    now: float
    open: Sequence[OpenRun]
    ended: Mapping[str, int]
    """The number of runs that ended, by ending."""
    recent: Sequence[EndedFigures] = ()
    """The latest of them, with what they did."""
    unreadable: int = 0
    journal_lag_s: float = 0.0
    journal_bytes: int = 0
    free_bytes: int = 0
    calls: CallGauges | None = None
    """Known only to the process that works on a run."""


def samples(snapshot: RunsSnapshot, tally: Tally) -> Iterator[Sample]:
    yield "fleet_build_info", (__version__,), 1
    yield from _runs(snapshot)
    yield from _work(snapshot)
    yield from _nodes(snapshot, tally)
    yield from _recovery(snapshot, tally)
    yield from _landing(snapshot, tally)
    yield "fleet_journal_lag_seconds", (), snapshot.journal_lag_s
    yield "fleet_journal_bytes", (), snapshot.journal_bytes
    yield "fleet_state_free_bytes", (), snapshot.free_bytes
    outages = Counter(outage.condition for run in snapshot.open if run.alive for outage in run.state.service.values())
    for condition in LABELS["condition"]:
        yield "fleet_service_outages", (condition,), outages[condition]  # type: ignore[index] # one of the conditions
    if snapshot.calls is not None:
        yield from _calls(snapshot.calls)


def _runs(snapshot: RunsSnapshot) -> Iterator[Sample]:
    words = Counter(run_word(run.state, snapshot.now, alive=run.alive) for run in snapshot.open)
    counts = words + Counter(snapshot.ended)
    for state in RUN_STATES:
        yield "fleet_runs", (state,), counts[state]
    yield "fleet_runs_unreadable", (), snapshot.unreadable
    yield "fleet_questions_open", (), sum(len(run.state.open_questions()) for run in snapshot.open)
    shown = sorted(snapshot.open, key=lambda run: -run.state.started_at)[:MOST_RUNS]
    for run in shown:
        yield from _run(run.state, snapshot.now, alive=run.alive)
    for ended in snapshot.recent[: MOST_RUNS - len(shown)]:
        yield from _ended(ended)


def _ended(ended: EndedFigures) -> Iterator[Sample]:
    run = (ended.run,)
    yield "fleet_run_info", (ended.run, name_of(PurePath(ended.repository).name), ended.state), 1
    yield "fleet_run_started_timestamp_seconds", run, ended.started_at
    yield "fleet_run_elapsed_seconds", run, ended.seconds
    yield "fleet_run_landed_subtasks", run, ended.landed
    yield "fleet_run_subtasks", run, ended.subtasks
    yield "fleet_run_cost_dollars", run, ended.dollars
    yield "fleet_run_needs_human", run, False
    yield "fleet_run_interrupted", run, False


def _run(state: RunState, now: float, *, alive: bool) -> Iterator[Sample]:
    run, landed = (state.run,), progress(state)
    seen_at = now if alive else state.last_at
    needs_human = bool(needed(state, seen_at, alive=alive))
    word = run_word(state, now, alive=alive)
    yield "fleet_run_info", (state.run, name_of(PurePath(state.repository).name), word), 1
    yield "fleet_run_started_timestamp_seconds", run, state.started_at
    yield "fleet_run_elapsed_seconds", run, state.seconds(seen_at)
    yield "fleet_run_landed_subtasks", run, landed.done
    yield "fleet_run_subtasks", run, landed.total
    yield "fleet_run_interrupted", run, not alive
    ends_at = ends_unanswered_at(state, now) if alive else None
    if ends_at is not None:
        yield "fleet_run_ends_unanswered_timestamp_seconds", run, ends_at
    if word in MOVING and not (needs_human and not any(state.underway())):
        yield "fleet_run_last_fact_timestamp_seconds", run, state.last_at
    yield "fleet_run_needs_human", run, needs_human
    yield "fleet_run_base_red", run, bool(state.red_base)
    yield "fleet_run_cost_dollars", run, state.spent.priced_dollars
    if state.policy.budget_dollars is not None:
        yield "fleet_run_budget_dollars", run, state.policy.budget_dollars
    shares = [budget.used / budget.limit for budget in run_budgets(state, seen_at)]
    if shares:
        yield "fleet_run_budget_used_ratio", run, max(shares)


def _work(snapshot: RunsSnapshot) -> Iterator[Sample]:
    agents, subtasks = Counter[str](), Counter[str]()
    for run in snapshot.open:
        subtasks.update(status_counts(run.state, snapshot.now))
        if run.alive:
            agents.update(agent_phases(run.state))
    for state in AGENT_STATES:
        yield "fleet_agents", (state,), agents[state]
    for status in get_args(Status):
        yield "fleet_subtasks", (status,), subtasks[status]
    yield "fleet_agents_limit", (), sum(run.state.policy.workers for run in snapshot.open if run.alive)
    yield "fleet_agents_peak", (), max((run.state.peak for run in snapshot.open), default=0)
    yield "fleet_worktree_leases", (), agents["working"]


def _nodes(snapshot: RunsSnapshot, tally: Tally) -> Iterator[Sample]:
    """The nodes of runs at work, by names that are counted together where there are too many."""
    states, attempts, slots = Counter[str](), Counter[str](), Counter[str]()
    up: dict[str, bool] = {}
    for run in snapshot.open:
        busy = node_occupancy(run.state) if run.alive else Counter[str]()
        for node in listed(run.state.nodes) if run.alive else ():
            name = tally.nodes.of(node.name)
            states[node_status(run.state.nodes, node)] += 1
            up[name] = up.get(name, True) and not node.out
            attempts[name] += busy[node.name]
            slots[name] = max(slots[name], node.greeting.workers if node.greeting is not None else 0)
    for state in NODE_STATES:
        yield "fleet_nodes", (state,), states[state]
    for name in sorted(up):
        yield "fleet_node_up", (name,), up[name]
        yield "fleet_node_slots", (name,), slots[name]
        yield "fleet_node_attempts", (name,), attempts[name]
    waiting = (len(waiting_for_machines(run.state, snapshot.now)) for run in snapshot.open if run.alive)
    yield "fleet_machine_waits", (), sum(waiting)


def _recovery(snapshot: RunsSnapshot, tally: Tally) -> Iterator[Sample]:
    open_ = sum(incident.closed_at is None for run in snapshot.open for incident in run.state.incidents)
    yield "fleet_incidents_open", (), open_
    outcomes = Counter[str]()
    for (_, outcome), count in tally.counters["fleet_incidents_closed"].items():
        outcomes[outcome] += count
    if outcomes.total():
        yield "fleet_recovery_ratio", (), outcomes["recovered"] / outcomes.total()
    for outcome, recent in tally.incidents.items():
        for window, seconds in WINDOWS.items():
            yield "fleet_recent_incidents", (window, outcome), recent.within(seconds, snapshot.now)


def _landing(snapshot: RunsSnapshot, tally: Tally) -> Iterator[Sample]:
    for window, seconds in WINDOWS.items():
        yield "fleet_recent_commits", (window,), tally.commits.within(seconds, snapshot.now)
    yield "fleet_landing_queue", (), sum(_candidates(run.state) for run in snapshot.open)
    alive = [run.state for run in snapshot.open if run.alive]
    yield "fleet_batches_testing", (), sum(len(state.landing.open_batches) for state in alive)
    yield "fleet_batches_limit", (), sum(state.policy.slots for state in alive)


def _candidates(state: RunState) -> int:
    """How many are in the merge queue, or were taken out of it to be tested alone."""
    taken_out = {member.subtask for batch in state.landing.open_batches if batch.alone for member in batch.members}
    return len(taken_out | set(state.landing.queue))


def _calls(calls: CallGauges) -> Iterator[Sample]:
    families = sorted({quota.family for quota in calls.granted})[:MOST_NAMES]
    for quota in calls.granted:
        if quota.family in families and quota.limit_a_minute > 0:
            yield "fleet_model_headroom_ratio", (quota.family, quota.counted), quota.left / quota.limit_a_minute
    conditions = set(calls.shut.values()) or {"up"}
    for condition in CONDITIONS:
        yield "fleet_model_breaker", (condition,), condition in conditions
    yield "fleet_model_calls_underway", (), calls.underway
    yield "fleet_model_calls_waiting", (), calls.waiting
    for fault, count in calls.faults.items():
        yield "fleet_model_faults", (fault,), count
