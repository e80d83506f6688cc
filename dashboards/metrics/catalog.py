"""All metrics in one literal table: name, kind, labels and help.

`docs/reference/metrics.md` is generated from it. No label holds a subtask, a path or a branch, and every label has few
values: `LABELS` lists them or states their limit. Names are public: rules and dashboards outside this project use them.
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
"""Maximum number of worker or model names with separate series. Further names are counted as `other`."""
MOST_RUNS = 20
"""Maximum number of runs with separate series: unfinished runs first, then the latest."""
WINDOWS: Mapping[str, float] = {"1h": 3600.0, "1d": 86_400.0, "1w": 604_800.0}
AGENT_STATES: tuple[str, ...] = get_args(AttemptPhase)
RUN_STATES: tuple[str, ...] = get_args(RunStatus)
NODE_STATES: tuple[str, ...] = get_args(NodeStatus)
INCIDENT_OUTCOMES = ("recovered", "unrecovered")
OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "fleet_incidents_closed": INCIDENT_OUTCOMES,
    "fleet_incidents_by_strategy": INCIDENT_OUTCOMES,
    "fleet_review_findings": get_args(FindingResult),
}
"""The values of the label `outcome` for metrics whose outcomes are all known."""
CALL_REASONS = ("start", "failures", "answers", "reports", "conclude", "budget", OTHER)
CONDITIONS = get_args(ServiceCondition)

SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

LABELS: Mapping[str, tuple[str, ...] | str] = {
    "version": "the version of fleet",
    "state": "listed with each metric",
    "status": get_args(SubtaskStatus),
    "ending": get_args(Ending),
    "worker": f"worker kinds in the configuration, at most {MOST_NAMES}, then `{OTHER}`",
    "model": f"model names, at most {MOST_NAMES}, then `{OTHER}`",
    "outcome": "listed with each metric",
    "class": get_args(FailureKind),
    "strategy": get_args(Strategy),
    "reason": CALL_REASONS,
    "role": get_args(Role),
    "kind": ("input", "output", "cache_read", "cache_write"),
    "result": ("passed", "failed"),
    "window": tuple(WINDOWS),
    "limit": ("requests", "input", "output"),
    "condition": CONDITIONS[1:],
    "family": f"model families, at most {MOST_NAMES}",
    "fault": "kinds of model call failures",
    "node": f"nodes in the configuration, at most {MOST_NAMES}, then `{OTHER}`",
    "run": f"at most {MOST_RUNS} runs: unfinished runs first, then the latest",
    "repository": f"directory names of the repositories of these {MOST_RUNS} runs",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. The name of a counter omits the suffix `_total` of its series."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    live: bool = False
    """Whether only the process that executes the run can report it: `fleet run --metrics`."""

    @property
    def series(self) -> str:
        """The name of the series that Prometheus scrapes."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "Runs": (
        Metric("fleet_build_info", "gauge", "Information about the fleet build. Always 1.", ("version",)),
        Metric("fleet_runs", "gauge", f"Number of runs, by state: {', '.join(RUN_STATES)}.", ("state",)),
        Metric("fleet_runs_unreadable", "gauge", "Number of runs whose journal can't be read."),
        Metric("fleet_runs_started", "counter", "Total number of runs started."),
        Metric(
            "fleet_runs_ended",
            "counter",
            "Total number of runs ended, by ending. A reopened run can end more than once.",
            ("ending",),
        ),
        Metric(
            "fleet_rehearsals_started",
            "counter",
            "Total number of rehearsals started. Only the model call metrics include `--for-real` rehearsals.",
        ),
        Metric("fleet_rehearsals_ended", "counter", "Total number of rehearsals ended, by ending.", ("ending",)),
        Metric("fleet_engine_starts", "counter", "Total number of engine starts, including resumes."),
        Metric("fleet_questions_open", "gauge", "Number of open questions in unfinished runs."),
        Metric("fleet_run_info", "gauge", "Information about the run. Always 1.", ("run", "repository", "state")),
        *(Metric(f"fleet_run_{each.name}", "gauge", each.help, ("run",)) for each in figures_of("metrics")),
    ),
    "Agents and subtasks": (
        Metric("fleet_agents", "gauge", f"Number of agents, by state: {', '.join(AGENT_STATES)}.", ("state",)),
        Metric("fleet_agents_limit", "gauge", "Maximum number of concurrent agents, summed over active runs."),
        Metric("fleet_agents_peak", "gauge", "Highest number of concurrent agents in any unfinished run."),
        Metric("fleet_subtasks", "gauge", "Number of subtasks in unfinished runs, by status.", ("status",)),
        Metric("fleet_attempts_started", "counter", "Total number of attempts started.", ("worker", "strategy")),
        Metric(
            "fleet_attempts",
            "counter",
            "Total number of attempts ended, by outcome: `landed`, the class of the failure, or `stopped`.",
            ("worker", "outcome"),
        ),
        Metric("fleet_attempt_seconds", "histogram", "Duration of attempts.", ("worker",), SECONDS),
        Metric("fleet_attempt_wait_seconds", "histogram", "Time an attempt waited for its worktree.", (), SECONDS),
        Metric("fleet_worktree_leases", "gauge", "Number of worktrees leased to workers."),
    ),
    "Nodes": (
        Metric(
            "fleet_nodes", "gauge", f"Number of nodes of active runs, by state: {', '.join(NODE_STATES)}.", ("state",)
        ),
        Metric("fleet_node_up", "gauge", "Whether every active run that uses this node is connected to it.", ("node",)),
        Metric("fleet_node_slots", "gauge", "Maximum number of concurrent attempts on this node, per run.", ("node",)),
        Metric("fleet_node_attempts", "gauge", "Number of attempts running on this node.", ("node",)),
        Metric("fleet_node_attempts_started", "counter", "Total number of attempts started on this node.", ("node",)),
        Metric("fleet_node_losses", "counter", "Total number of lost node connections.", ("node",)),
        Metric(
            "fleet_subtasks_waiting_for_machine",
            "gauge",
            "Number of ready subtasks that wait for a machine with matching labels.",
        ),
    ),
    "Recovery": (
        Metric(
            "fleet_incidents_opened",
            "counter",
            "Total number of incidents opened, by the class of their first failure.",
            ("class",),
        ),
        Metric(
            "fleet_incidents_closed",
            "counter",
            "Total number of incidents closed: `recovered` without human help, or `unrecovered`.",
            ("class", "outcome"),
        ),
        Metric(
            "fleet_incidents_by_strategy",
            "counter",
            "Total number of closed incidents, counted once for each strategy tried. `recovered` counts the strategy "
            "that succeeded.",
            ("strategy", "outcome"),
        ),
        Metric(
            "fleet_recoveries",
            "counter",
            "Total number of recovered incidents, by the strategy that succeeded.",
            ("strategy",),
        ),
        Metric("fleet_incidents_open", "gauge", "Number of open incidents in unfinished runs."),
        Metric("fleet_incident_seconds", "histogram", "Time from the first failure to recovery.", (), SECONDS),
        Metric(
            "fleet_recovery_ratio",
            "gauge",
            "Recovered incidents divided by closed incidents. Absent until an incident closes.",
        ),
        Metric(
            "fleet_recent_incidents",
            "gauge",
            "Number of incidents closed within the window up to now, by outcome: `recovered` or `unrecovered`.",
            ("window", "outcome"),
        ),
    ),
    "Planner": (
        Metric("fleet_planner_calls", "counter", "Total number of planner calls, by reason.", ("reason",)),
        Metric("fleet_planner_failures", "counter", "Total number of failed planner calls, by class.", ("class",)),
        Metric("fleet_replans", "counter", "Total number of revisions of an existing plan, by reason.", ("reason",)),
    ),
    "Landing": (
        Metric("fleet_commits_landed", "counter", "Total number of commits landed on integration branches."),
        Metric("fleet_recent_commits", "gauge", "Number of commits landed within the window up to now.", ("window",)),
        Metric("fleet_landing_seconds", "histogram", "Time from a verified commit to its landing.", (), SECONDS),
        Metric(
            "fleet_landing_queue", "gauge", "Number of candidates in the merge queue, including those being tested."
        ),
        Metric("fleet_batches_testing", "gauge", "Number of batches being tested."),
        Metric(
            "fleet_batches_limit", "gauge", "Maximum number of batches tested concurrently, summed over active runs."
        ),
        Metric("fleet_batch_size", "histogram", "Number of candidates per batch.", (), SIZES),
        Metric("fleet_batches_tested", "counter", "Total number of batches tested, by result.", ("result",)),
        Metric("fleet_bisects", "counter", "Total number of batches created to bisect a failing batch."),
        Metric("fleet_conflicts", "counter", "Total number of candidates that conflicted with landed work."),
        Metric("fleet_flakes", "counter", "Total number of checks that failed and then passed on the same tree."),
        Metric("fleet_checks", "counter", "Total number of checks run, by result.", ("result",)),
        Metric("fleet_check_seconds", "histogram", "Duration of checks.", (), SECONDS),
        Metric(
            "fleet_sandbox_command_seconds", "histogram", "Duration of commands run by workers.", (), SECONDS, live=True
        ),
        Metric("fleet_publications", "counter", "Total number of updates of result branches."),
        Metric("fleet_publish_failures", "counter", "Total number of failed updates of result branches."),
    ),
    "Reviews": (
        Metric(
            "fleet_reviews",
            "counter",
            "Total number of change reviews, by result. A review without findings passes.",
            ("model", "result"),
        ),
        Metric(
            "fleet_review_findings",
            "counter",
            "Total number of review findings, by outcome. A `reverted` finding was first counted as `ignored`, so "
            "false alarms are `ignored` minus `reverted`.",
            ("outcome",),
        ),
        Metric(
            "fleet_review_findings_discarded",
            "counter",
            "Total number of findings discarded because they do not point to a line of the change.",
        ),
    ),
    "Models": (
        Metric("fleet_model_calls", "counter", "Total number of model calls that used tokens.", ("role", "model")),
        Metric(
            "fleet_model_tokens",
            "counter",
            "Total number of tokens used; `input` excludes cached tokens.",
            ("role", "model", "kind"),
        ),
        Metric("fleet_model_cost_dollars", "counter", "Total cost of calls with a known price.", ("role", "model")),
        Metric(
            "fleet_model_unpriced_calls", "counter", "Total number of calls with an unknown price.", ("role", "model")
        ),
        Metric("fleet_model_calls_lost", "counter", "Total number of calls interrupted after being billed.", ("role",)),
        Metric("fleet_model_call_seconds", "histogram", "Duration of model calls.", ("role",), SECONDS),
        Metric(
            "fleet_service_outages",
            "gauge",
            "Number of model service outages that runs wait for, by condition: `down`, `limited` or `refused`.",
            ("condition",),
        ),
        Metric(
            "fleet_model_rate_limit_remaining_ratio",
            "gauge",
            "Unused fraction of a rate limit of the model service.",
            ("family", "limit"),
            live=True,
        ),
        Metric(
            "fleet_model_service_state",
            "gauge",
            "Whether the model service is in this state: `up`, `down`, `limited` or `refused`.",
            ("state",),
            live=True,
        ),
        Metric("fleet_model_calls_in_flight", "gauge", "Number of model calls waiting for a response.", live=True),
        Metric("fleet_model_calls_waiting", "gauge", "Number of model calls held back by the rate limiter.", live=True),
        Metric(
            "fleet_model_faults",
            "counter",
            "Total number of failed model calls, by kind of fault.",
            ("fault",),
            live=True,
        ),
    ),
    "The program": (
        Metric("fleet_journal_facts", "counter", "Total number of facts read from journals."),
        Metric("fleet_journal_lag_seconds", "gauge", "Age of the latest fact when this exporter read it."),
        Metric("fleet_journal_bytes", "gauge", "Size of all journals."),
        Metric("fleet_state_free_bytes", "gauge", "Free disk space of the state directory."),
        Metric(
            "fleet_event_loop_delay_seconds", "histogram", "Delay of the engine's event loop.", (), QUICK, live=True
        ),
        Metric("fleet_scrape_seconds", "gauge", "Duration of the previous scrape."),
    ),
}
METRICS: Mapping[str, Metric] = {metric.name: metric for section in SECTIONS.values() for metric in section}
