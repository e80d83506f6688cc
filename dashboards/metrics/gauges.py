"""Gauges: samples of the current figures of runs, taken at each scrape and never stored."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar, get_args

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
from dashboards.metrics.counted_runs import EndedRun
from dashboards.metrics.counters import Tally, name_of
from fleet import __version__
from fleet.ports.agents import CallGauges
from fleet.read.figures import one_number
from fleet.read.run import RunSnapshot
from fleet.read.run_view import SubtaskStatus

Sample = tuple[str, tuple[str, ...], float]
"""A metric name, its label values, and its value."""
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, slots=True)
class RunsSnapshot:
    """All runs at one moment."""

    now: float
    open: Sequence[RunSnapshot]
    """The runs that have not ended."""
    ended: Mapping[str, int]
    """The number of ended runs, by ending."""
    recent: Sequence[EndedRun] = ()
    """The latest ended runs, with their figures."""
    unreadable: int = 0
    journal_lag_s: float = 0.0
    journal_bytes: int = 0
    free_bytes: int = 0
    calls: CallGauges | None = None
    """None except in the process of a run."""


def samples(snapshot: RunsSnapshot, tally: Tally) -> Iterator[Sample]:
    runs = snapshot.open
    yield "fleet_build_info", (__version__,), 1
    yield from _runs(snapshot, runs)
    yield from _work(runs)
    yield from _nodes(runs, tally)
    yield from _recovery(snapshot, runs, tally)
    yield from _landing(snapshot, runs, tally)
    yield "fleet_journal_lag_seconds", (), snapshot.journal_lag_s
    yield "fleet_journal_bytes", (), snapshot.journal_bytes
    yield "fleet_state_free_bytes", (), snapshot.free_bytes
    outages = Counter[str](outage.condition for run in runs if run.alive for outage in run.outages)
    for condition in LABELS["condition"]:
        yield "fleet_service_outages", (condition,), outages[condition]
    if snapshot.calls is not None:
        yield from _calls(snapshot.calls)


def _sum(counts: Iterable[Mapping[Name, int]]) -> Counter[str]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return total


def _runs(snapshot: RunsSnapshot, runs: Sequence[RunSnapshot]) -> Iterator[Sample]:
    counts = Counter[str](run.word for run in runs) + Counter(snapshot.ended)
    for state in RUN_STATES:
        yield "fleet_runs", (state,), counts[state]
    yield "fleet_runs_unreadable", (), snapshot.unreadable
    yield "fleet_questions_open", (), sum(len(run.question_lines()) for run in runs)
    shown = sorted(runs, key=lambda run: -run.started_at)[:MOST_RUNS]
    for run in shown:
        yield from _run(run)
    for ended in snapshot.recent[: MOST_RUNS - len(shown)]:
        yield from _ended(ended)


def _ended(ended: EndedRun) -> Iterator[Sample]:
    run, figures = (ended.run,), ended.figures
    yield "fleet_run_info", (ended.run, name_of(PurePath(figures.repository).name), ended.word), 1
    yield "fleet_run_started_timestamp_seconds", run, ended.started_at
    yield "fleet_run_elapsed_seconds", run, figures.seconds
    yield "fleet_run_landed_subtasks", run, figures.landed.done
    yield "fleet_run_subtasks", run, figures.landed.total
    yield "fleet_run_cost_dollars", run, figures.spent.priced_dollars
    yield "fleet_run_needs_human", run, False
    yield "fleet_run_interrupted", run, False


def _run(run: RunSnapshot) -> Iterator[Sample]:
    yield "fleet_run_info", (run.run, name_of(PurePath(run.figures.repository).name), run.word), 1
    for figure, value in run.shown("metrics"):
        yield f"fleet_run_{figure.name}", (run.run,), one_number(value)


def _work(runs: Sequence[RunSnapshot]) -> Iterator[Sample]:
    agents, subtasks = _sum(run.phases() for run in runs), _sum(run.subtask_counts() for run in runs)
    for state in AGENT_STATES:
        yield "fleet_agents", (state,), agents[state]
    for status in get_args(SubtaskStatus):
        yield "fleet_subtasks", (status,), subtasks[status]
    yield "fleet_agents_limit", (), sum(run.figures.workers for run in runs if run.alive)
    yield "fleet_agents_peak", (), max((run.figures.peak for run in runs), default=0)
    yield "fleet_worktree_leases", (), agents["working"]


def _nodes(runs: Sequence[RunSnapshot], tally: Tally) -> Iterator[Sample]:
    """The nodes of active runs. Excess names are counted together."""
    states, attempts, slots = Counter[str](), Counter[str](), Counter[str]()
    up: dict[str, bool] = {}
    for it, node in ((run, node) for run in runs if run.alive for node in run.nodes):
        name = tally.nodes.of(node.name)
        states[node.status] += 1
        up[name] = up.get(name, True) and it.is_connected(node.name)
        attempts[name] += node.working
        slots[name] = max(slots[name], node.workers or 0)
    for state in NODE_STATES:
        yield "fleet_nodes", (state,), states[state]
    for name in sorted(up):
        yield "fleet_node_up", (name,), up[name]
        yield "fleet_node_slots", (name,), slots[name]
        yield "fleet_node_attempts", (name,), attempts[name]
    yield "fleet_subtasks_waiting_for_machine", (), sum(len(run.waiting_for_machines) for run in runs if run.alive)


def _recovery(snapshot: RunsSnapshot, runs: Sequence[RunSnapshot], tally: Tally) -> Iterator[Sample]:
    yield "fleet_incidents_open", (), sum(run.figures.open_incidents for run in runs)
    outcomes = Counter[str]()
    for (_, outcome), count in tally.counters["fleet_incidents_closed"].items():
        outcomes[outcome] += count
    if outcomes.total():
        yield "fleet_recovery_ratio", (), outcomes["recovered"] / outcomes.total()
    for outcome, recent in tally.incidents.items():
        for window, seconds in WINDOWS.items():
            yield "fleet_recent_incidents", (window, outcome), recent.within(seconds, snapshot.now)


def _landing(snapshot: RunsSnapshot, runs: Sequence[RunSnapshot], tally: Tally) -> Iterator[Sample]:
    for window, seconds in WINDOWS.items():
        yield "fleet_recent_commits", (window,), tally.commits.within(seconds, snapshot.now)
    yield "fleet_landing_queue", (), sum(len(run.queue.candidates) for run in runs)
    yield "fleet_batches_testing", (), sum(len(run.queue.testing) for run in runs if run.alive)
    yield "fleet_batches_limit", (), sum(run.figures.slots for run in runs if run.alive)


def _calls(calls: CallGauges) -> Iterator[Sample]:
    families = sorted({quota.family for quota in calls.granted})[:MOST_NAMES]
    for quota in calls.granted:
        if quota.family in families and quota.limit_a_minute > 0:
            yield (
                "fleet_model_rate_limit_remaining_ratio",
                (quota.family, quota.counted),
                quota.left / quota.limit_a_minute,
            )
    conditions = set(calls.shut.values()) or {"up"}
    for condition in CONDITIONS:
        yield "fleet_model_service_state", (condition,), condition in conditions
    yield "fleet_model_calls_in_flight", (), calls.underway
    yield "fleet_model_calls_waiting", (), calls.waiting
    for fault, count in calls.faults.items():
        yield "fleet_model_faults", (fault,), count
