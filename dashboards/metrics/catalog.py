"""Every metric there is, in one literal table: name, kind, labels, meaning.

The tables of `docs/reference/metrics.md` are made from it. A label never holds a subtask, a path or a branch, and every
label has few values: `LABELS` says which, or how they are kept few. Names are public: rules and dashboards of others
rest on them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fleet.core.facts import Ending, FailureKind, Role, ServiceCondition, Strategy
from fleet.core.standing import Standing

Kind = Literal["counter", "gauge", "histogram"]
OTHER = "other"
MOST_NAMES = 20
"""Distinct names of workers or models that are kept apart; what comes after them is `other`."""
MOST_RUNS = 20
"""Runs that have series of their own: those that have not ended, the latest begun first."""
WINDOWS: Mapping[str, float] = {"1h": 3600.0, "1d": 86_400.0, "1w": 604_800.0}
AGENT_STATES = ("planning", "starting", "working", "checking", "landing")
RUN_STATES = (
    "planning",
    "running",
    "paused",
    "draining",
    "awaiting approval",
    "over budget",
    "interrupted",
    *get_args(Ending),
)
CALL_REASONS = ("start", "failures", "answers", "reports", "conclude", "budget", OTHER)
TOKEN_KINDS = ("input", "output", "cache_read", "cache_write")

CONDITIONS = get_args(ServiceCondition)

SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

LABELS: Mapping[str, tuple[str, ...] | str] = {
    "version": "the one that answers",
    "state": "what the metric's own line says",
    "status": get_args(Standing),
    "ending": get_args(Ending),
    "worker": f"the names of the configuration, {MOST_NAMES} at most, then `{OTHER}`",
    "model": f"the names that the service answers with, {MOST_NAMES} at most, then `{OTHER}`",
    "outcome": "what the metric's own line says",
    "class": get_args(FailureKind),
    "strategy": get_args(Strategy),
    "reason": CALL_REASONS,
    "role": get_args(Role),
    "kind": TOKEN_KINDS,
    "result": ("green", "red"),
    "window": tuple(WINDOWS),
    "limit": ("requests", "input", "output"),
    "family": f"families of models, {MOST_NAMES} at most",
    "fault": "what is wrong with a call: a few words of the model client's",
    "run": f"runs that have not ended, the latest {MOST_RUNS}",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A counter's name leaves out `_total`, which is put behind it where it is shown."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    live: bool = False
    """Only where the run is at work in the same process: `fleet run --metrics`."""

    @property
    def shown(self) -> str:
        """The name of its series."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def series(self) -> tuple[str, ...]:
        """All names that a query may use."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return (self.shown,)


SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "Runs": (
        Metric("fleet_build", "gauge", "Always 1; the version that answers.", ("version",)),
        Metric("fleet_runs", "gauge", f"Runs by their state: {', '.join(RUN_STATES)}.", ("state",)),
        Metric("fleet_runs_unreadable", "gauge", "Runs whose journal can't be read; `fleet status RUN` says why."),
        Metric("fleet_runs_begun", "counter", "Runs that were begun."),
        Metric("fleet_runs_ended", "counter", "Times a run ended, by how.", ("ending",)),
        Metric("fleet_engine_starts", "counter", "Times an engine took over a run: its start, and each resume."),
        Metric("fleet_questions_open", "gauge", "Questions that wait for a human, in runs that have not ended."),
        Metric("fleet_run_elapsed_seconds", "gauge", "Seconds a run was worked on.", ("run",)),
        Metric(
            "fleet_run_last_fact_timestamp_seconds",
            "gauge",
            "When something last happened in a run that should move: an engine works on it and waits for no human.",
            ("run",),
        ),
        Metric(
            "fleet_run_needs_human", "gauge", "1 where a run asks a question or waits for approval, else 0.", ("run",)
        ),
        Metric("fleet_run_base_red", "gauge", "1 where the gate was red on the base and still is, else 0.", ("run",)),
        Metric("fleet_run_cost_dollars", "gauge", "What a run has cost, as far as prices are known.", ("run",)),
        Metric("fleet_run_budget_dollars", "gauge", "What a run may cost, where that is limited.", ("run",)),
        Metric("fleet_run_budget_used_ratio", "gauge", "The largest share of its budgets that is gone.", ("run",)),
    ),
    "Agents and subtasks": (
        Metric("fleet_agents", "gauge", f"Agents by what they are at: {', '.join(AGENT_STATES)}.", ("state",)),
        Metric("fleet_agents_limit", "gauge", "Workers allowed at once, over the runs that an engine works on."),
        Metric("fleet_agents_peak", "gauge", "The most workers that were at work at once, of any run not ended."),
        Metric("fleet_subtasks", "gauge", "Subtasks by status, of runs that have not ended.", ("status",)),
        Metric("fleet_attempts_started", "counter", "Attempts that were started.", ("worker", "strategy")),
        Metric(
            "fleet_attempts",
            "counter",
            "Attempts that ended: `landed`, the class of their failure, or `stopped`.",
            ("worker", "outcome"),
        ),
        Metric("fleet_attempt_seconds", "histogram", "From the decision to try to the end.", ("worker",), SECONDS),
        Metric(
            "fleet_attempt_wait_seconds",
            "histogram",
            "From that decision until a worker had its worktree.",
            (),
            SECONDS,
        ),
        Metric("fleet_worktree_leases", "gauge", "Worktrees that workers hold."),
    ),
    "Recovery": (
        Metric("fleet_incidents_opened", "counter", "Incidents, by the class of their first failure.", ("class",)),
        Metric(
            "fleet_incidents_closed",
            "counter",
            "Incidents that closed: `recovered` without a human, or `unrecovered`.",
            ("class", "outcome"),
        ),
        Metric(
            "fleet_incidents_by_strategy",
            "counter",
            "Incidents that closed, once for each strategy chosen for it: `recovered` by that one, or `unrecovered`.",
            ("strategy", "outcome"),
        ),
        Metric("fleet_recoveries", "counter", "Incidents that recovered, by what did it.", ("strategy",)),
        Metric("fleet_incidents_open", "gauge", "Incidents that are open, in runs that have not ended."),
        Metric("fleet_incident_seconds", "histogram", "From a first failure to its recovery.", (), SECONDS),
        Metric(
            "fleet_recovery_ratio",
            "gauge",
            "Recovered of closed incidents, over all runs; absent while none closed. Of how many, the counters say.",
        ),
        Metric(
            "fleet_recent_incidents",
            "gauge",
            "Incidents that closed within a window that ends now, by the journal: `recovered` or `unrecovered`.",
            ("window", "outcome"),
        ),
    ),
    "Planner": (
        Metric("fleet_planner_calls", "counter", "Calls of the planner, by why.", ("reason",)),
        Metric("fleet_planner_failures", "counter", "Calls of the planner that came to nothing.", ("class",)),
        Metric(
            "fleet_replans",
            "counter",
            "Revisions that changed a plan that was there, by why it was called.",
            ("reason",),
        ),
    ),
    "Landing": (
        Metric("fleet_commits_landed", "counter", "Commits that landed on integration branches: one a subtask."),
        Metric(
            "fleet_recent_commits",
            "gauge",
            "Commits that landed within a window that ends now, by when the journal says.",
            ("window",),
        ),
        Metric("fleet_landing_seconds", "histogram", "From a verified commit to its landing.", (), SECONDS),
        Metric("fleet_landing_queue", "gauge", "Candidates that wait to land, or are being tested."),
        Metric("fleet_batch_size", "histogram", "Candidates in a batch.", (), SIZES),
        Metric("fleet_gate_runs", "counter", "Batches that were tested, by what came of it.", ("result",)),
        Metric("fleet_bisects", "counter", "Batches that were formed to narrow down who is guilty of a red one."),
        Metric("fleet_conflicts", "counter", "Candidates that did not merge with what landed meanwhile."),
        Metric("fleet_flakes", "counter", "Checks that failed and then passed on the same tree."),
        Metric("fleet_checks", "counter", "Checks that were run: on a base, a commit, a merged tree.", ("result",)),
        Metric("fleet_check_seconds", "histogram", "How long a check took in its box.", (), SECONDS),
        Metric("fleet_box_command_seconds", "histogram", "How long a worker's command took.", (), SECONDS, live=True),
        Metric("fleet_publications", "counter", "Times a result branch moved."),
        Metric("fleet_publish_failures", "counter", "Times a result branch could not be moved."),
    ),
    "Models": (
        Metric("fleet_model_calls", "counter", "Calls that used tokens.", ("role", "model")),
        Metric(
            "fleet_model_tokens", "counter", "Tokens; `input` leaves out what the cache had.", ("role", "model", "kind")
        ),
        Metric("fleet_model_cost_dollars", "counter", "Dollars, of calls whose price is known.", ("role", "model")),
        Metric("fleet_model_unpriced_calls", "counter", "Calls whose price is not known.", ("role", "model")),
        Metric(
            "fleet_model_calls_lost",
            "counter",
            "Calls that were stopped under way: paid for, and no answer.",
            ("role",),
        ),
        Metric("fleet_model_call_seconds", "histogram", "How long a call took.", ("role",), SECONDS),
        Metric(
            "fleet_model_headroom_ratio",
            "gauge",
            "What the service leaves of a limit in a minute: 1 is all of it.",
            ("family", "limit"),
            live=True,
        ),
        Metric(
            "fleet_model_breaker",
            "gauge",
            "1 for how the service is to all callers: `up`, or why calls wait for it: `down`, `limited` or `refused`.",
            ("state",),
            live=True,
        ),
        Metric("fleet_model_calls_underway", "gauge", "Calls that wait for their answer.", live=True),
        Metric("fleet_model_calls_waiting", "gauge", "Callers whose turn it is not yet.", live=True),
        Metric(
            "fleet_model_faults",
            "counter",
            "Calls that went wrong, by how.",
            ("fault",),
            live=True,
        ),
    ),
    "The program": (
        Metric("fleet_journal_facts", "counter", "Facts that were read from journals."),
        Metric("fleet_journal_lag_seconds", "gauge", "How old the latest fact was when this exporter came to read it."),
        Metric("fleet_journal_bytes", "gauge", "Bytes of all journals."),
        Metric("fleet_state_free_bytes", "gauge", "Bytes that are free where the state directory is."),
        Metric(
            "fleet_event_loop_delay_seconds", "histogram", "How late the engine's event loop was.", (), QUICK, live=True
        ),
        Metric("fleet_scrape_seconds", "gauge", "What the previous scrape took here."),
    ),
}
METRICS: Mapping[str, Metric] = {metric.name: metric for part in SECTIONS.values() for metric in part}


def series_names() -> Iterator[str]:
    """Every name that a query may use."""
    for metric in METRICS.values():
        yield from metric.series
