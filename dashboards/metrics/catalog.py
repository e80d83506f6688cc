"""Every metric there is, in one literal table: name, kind, labels, meaning.

`docs/reference/metrics.md` is generated from it. A label never holds a subtask, a path or a branch, and every label has
few values: `LABELS` lists them, or says how they are limited. Names are public: other people's rules and dashboards
depend on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fleet.core.facts.facts import Ending, FailureKind, FindingResult, Role, ServiceCondition, Strategy
from fleet.read.agent_rows import NodeStatus
from fleet.read.figures import figures_of
from fleet.read.run_view import AttemptPhase, RunStatus, SubtaskStatus

Kind = Literal["counter", "gauge", "histogram"]
OTHER = "other"
MOST_NAMES = 20
"""Names of workers or models that have series of their own; further names are counted as `other`."""
MOST_RUNS = 20
"""Runs that have series of their own: the latest ones, those that have not ended first."""
WINDOWS: Mapping[str, float] = {"1h": 3600.0, "1d": 86_400.0, "1w": 604_800.0}
AGENT_STATES: tuple[str, ...] = get_args(AttemptPhase)
RUN_STATES: tuple[str, ...] = get_args(RunStatus)
NODE_STATES: tuple[str, ...] = get_args(NodeStatus)
INCIDENT_OUTCOMES = ("recovered", "unrecovered")
OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "fleet_incidents_closed": INCIDENT_OUTCOMES,
    "fleet_incidents_by_strategy": INCIDENT_OUTCOMES,
}
"""The values of the label `outcome`, where none of them is the name of a class of failures."""
CALL_REASONS = ("start", "failures", "answers", "reports", "conclude", "budget", OTHER)
CONDITIONS = get_args(ServiceCondition)

SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

LABELS: Mapping[str, tuple[str, ...] | str] = {
    "version": "the version of the program that answers",
    "state": "listed with each metric",
    "status": get_args(SubtaskStatus),
    "ending": get_args(Ending),
    "worker": f"workers of the configuration, at most {MOST_NAMES}, then `{OTHER}`",
    "model": f"models as the service calls them, at most {MOST_NAMES}, then `{OTHER}`",
    "outcome": "listed with each metric",
    "class": get_args(FailureKind),
    "strategy": get_args(Strategy),
    "reason": CALL_REASONS,
    "role": get_args(Role),
    "kind": ("input", "output", "cache_read", "cache_write"),
    "result": ("green", "red"),
    "window": tuple(WINDOWS),
    "found": ("faults", "nothing"),
    "became": get_args(FindingResult),
    "limit": ("requests", "input", "output"),
    "condition": CONDITIONS[1:],
    "family": f"families of models, at most {MOST_NAMES}",
    "fault": "the kinds of faults that the model client knows",
    "node": f"nodes of the configuration, at most {MOST_NAMES}, then `{OTHER}`",
    "run": f"the latest {MOST_RUNS} runs, those that have not ended first",
    "repository": f"names of repositories' folders, with at most {MOST_RUNS} runs at a time",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. The name of a counter leaves out `_total`, which its series has."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    live: bool = False
    """Whether only the process that works on the run knows it: `fleet run --metrics`."""

    @property
    def series(self) -> str:
        """The name of its series."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "Runs": (
        Metric("fleet_build_info", "gauge", "Always 1; its label is the version.", ("version",)),
        Metric("fleet_runs", "gauge", f"Runs by state: {', '.join(RUN_STATES)}.", ("state",)),
        Metric("fleet_runs_unreadable", "gauge", "Runs whose journal can't be read; `fleet status RUN` says why."),
        Metric("fleet_runs_begun", "counter", "Runs that were started."),
        Metric("fleet_runs_ended", "counter", "Runs that ended, by ending; a reopened run may end again.", ("ending",)),
        Metric(
            "fleet_rehearsals_begun",
            "counter",
            "Rehearsals that were started. Only the metrics of model calls count those for real.",
        ),
        Metric("fleet_rehearsals_ended", "counter", "Rehearsals that ended, by ending.", ("ending",)),
        Metric("fleet_engine_starts", "counter", "Starts of an engine: the start of a run, and each resume."),
        Metric("fleet_questions_open", "gauge", "Questions that wait for a person, in runs that have not ended."),
        Metric("fleet_run_info", "gauge", "Always 1; its labels say how a run is.", ("run", "repository", "state")),
        *(Metric(f"fleet_run_{each.name}", "gauge", each.help, ("run",)) for each in figures_of("metrics")),
    ),
    "Agents and subtasks": (
        Metric("fleet_agents", "gauge", f"Agents by what they are doing: {', '.join(AGENT_STATES)}.", ("state",)),
        Metric("fleet_agents_limit", "gauge", "Workers allowed at the same time, over runs that an engine works on."),
        Metric("fleet_agents_peak", "gauge", "The most workers at the same time in any run that has not ended."),
        Metric("fleet_subtasks", "gauge", "Subtasks by status, in runs that have not ended.", ("status",)),
        Metric("fleet_attempts_started", "counter", "Attempts that were started.", ("worker", "strategy")),
        Metric(
            "fleet_attempts",
            "counter",
            "Attempts that ended, by outcome: `landed`, the class of the failure, or `stopped`.",
            ("worker", "outcome"),
        ),
        Metric("fleet_attempt_seconds", "histogram", "Duration of attempts, from start to end.", ("worker",), SECONDS),
        Metric("fleet_attempt_wait_seconds", "histogram", "Time until an attempt had its worktree.", (), SECONDS),
        Metric("fleet_worktree_leases", "gauge", "Worktrees that workers hold."),
    ),
    "Nodes": (
        Metric("fleet_nodes", "gauge", f"Nodes of runs at work, by state: {', '.join(NODE_STATES)}.", ("state",)),
        Metric(
            "fleet_node_up", "gauge", "1 if each run at work that has a node is connected to it, else 0.", ("node",)
        ),
        Metric("fleet_node_slots", "gauge", "Attempts that a node works on at once for a run.", ("node",)),
        Metric("fleet_node_attempts", "gauge", "Attempts that a node works on.", ("node",)),
        Metric("fleet_node_attempts_begun", "counter", "Attempts that a node began to work on.", ("node",)),
        Metric("fleet_node_losses", "counter", "How often a connected node was lost.", ("node",)),
        Metric("fleet_machine_waits", "gauge", "Subtasks that could start, but for a machine with their labels."),
    ),
    "Recovery": (
        Metric("fleet_incidents_opened", "counter", "Incidents, by the class of their first failure.", ("class",)),
        Metric(
            "fleet_incidents_closed",
            "counter",
            "Incidents that closed: `recovered` without a person's help, or `unrecovered`.",
            ("class", "outcome"),
        ),
        Metric(
            "fleet_incidents_by_strategy",
            "counter",
            "Closed incidents, counted once for each strategy chosen: `recovered` by it, or `unrecovered`.",
            ("strategy", "outcome"),
        ),
        Metric("fleet_recoveries", "counter", "Incidents that recovered, by the strategy that did it.", ("strategy",)),
        Metric("fleet_incidents_open", "gauge", "Open incidents, in runs that have not ended."),
        Metric("fleet_incident_seconds", "histogram", "Time from a first failure to its recovery.", (), SECONDS),
        Metric("fleet_recovery_ratio", "gauge", "Recovered incidents divided by closed ones; absent until one closed."),
        Metric(
            "fleet_recent_incidents",
            "gauge",
            "Incidents that closed in a window that ends now, by outcome: `recovered` or `unrecovered`.",
            ("window", "outcome"),
        ),
    ),
    "Planner": (
        Metric("fleet_planner_calls", "counter", "Planner calls, by reason.", ("reason",)),
        Metric("fleet_planner_failures", "counter", "Planner calls that failed, by class of failure.", ("class",)),
        Metric("fleet_replans", "counter", "Revisions of an existing plan, by the call's reason.", ("reason",)),
    ),
    "Landing": (
        Metric("fleet_commits_landed", "counter", "Commits that landed on integration branches, one for each subtask."),
        Metric("fleet_recent_commits", "gauge", "Commits that landed in a window that ends now.", ("window",)),
        Metric("fleet_landing_seconds", "histogram", "Time from a verified commit to its landing.", (), SECONDS),
        Metric("fleet_landing_queue", "gauge", "Candidates that wait to land or are being tested."),
        Metric("fleet_batches_testing", "gauge", "Batches that are being tested."),
        Metric("fleet_batches_limit", "gauge", "The most batches that may be tested at once, over all runs at work."),
        Metric("fleet_batch_size", "histogram", "Candidates in a batch.", (), SIZES),
        Metric("fleet_gate_runs", "counter", "Batches that were tested, by result.", ("result",)),
        Metric("fleet_bisects", "counter", "Batches that were formed to find the cause of a red one."),
        Metric("fleet_conflicts", "counter", "Candidates that conflicted with work that landed before them."),
        Metric("fleet_flakes", "counter", "Checks that failed and then passed on the same tree."),
        Metric("fleet_checks", "counter", "Checks on a base, a commit or a merged tree, by result.", ("result",)),
        Metric("fleet_check_seconds", "histogram", "Duration of checks.", (), SECONDS),
        Metric("fleet_box_command_seconds", "histogram", "Duration of workers' commands.", (), SECONDS, live=True),
        Metric("fleet_publications", "counter", "Updates of result branches."),
        Metric("fleet_publish_failures", "counter", "Failed updates of result branches."),
    ),
    "Reviews": (
        Metric("fleet_reviews", "counter", "Reviews of changes, by what they found.", ("model", "found")),
        Metric(
            "fleet_review_findings",
            "counter",
            "Findings by what became of them. `reverted` ones were `ignored` first; false alarms are those that were "
            "`ignored` and not `reverted`, as a share of `mended` and `ignored`.",
            ("became",),
        ),
        Metric("fleet_review_findings_discarded", "counter", "Findings that named no line of the change."),
    ),
    "Models": (
        Metric("fleet_model_calls", "counter", "Calls that used tokens.", ("role", "model")),
        Metric("fleet_model_tokens", "counter", "Tokens; `input` excludes cached ones.", ("role", "model", "kind")),
        Metric("fleet_model_cost_dollars", "counter", "Dollars of calls with a known price.", ("role", "model")),
        Metric("fleet_model_unpriced_calls", "counter", "Calls whose price is unknown.", ("role", "model")),
        Metric("fleet_model_calls_lost", "counter", "Calls interrupted after they were paid for.", ("role",)),
        Metric("fleet_model_call_seconds", "histogram", "Duration of calls.", ("role",), SECONDS),
        Metric(
            "fleet_service_outages",
            "gauge",
            "Outages of the model service for which runs wait, by condition: `down`, `limited` or `refused`.",
            ("condition",),
        ),
        Metric("fleet_model_headroom_ratio", "gauge", "Unused share of a rate limit.", ("family", "limit"), live=True),
        Metric(
            "fleet_model_breaker",
            "gauge",
            "1 for the condition of the service: `up`, or why calls wait: `down`, `limited` or `refused`.",
            ("state",),
            live=True,
        ),
        Metric("fleet_model_calls_underway", "gauge", "Calls that wait for their answer.", live=True),
        Metric("fleet_model_calls_waiting", "gauge", "Callers that wait for the rate limiter.", live=True),
        Metric("fleet_model_faults", "counter", "Calls that failed, by kind of fault.", ("fault",), live=True),
    ),
    "The program": (
        Metric("fleet_journal_facts", "counter", "Facts that were read from journals."),
        Metric("fleet_journal_lag_seconds", "gauge", "Age of the latest fact when this exporter read it."),
        Metric("fleet_journal_bytes", "gauge", "Size of all journals."),
        Metric("fleet_state_free_bytes", "gauge", "Free disk space for the state directory."),
        Metric(
            "fleet_event_loop_delay_seconds", "histogram", "Delay of the engine's event loop.", (), QUICK, live=True
        ),
        Metric("fleet_scrape_seconds", "gauge", "Duration of the previous scrape, measured here."),
    ),
}
METRICS: Mapping[str, Metric] = {metric.name: metric for section in SECTIONS.values() for metric in section}
