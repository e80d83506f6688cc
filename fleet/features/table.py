"""The features, one entry each. Literal, so that a feature is only imported when it is used.

A feature is the folder of its name next to this file, or in `dashboards`. The rest of the program works without the
folder and its entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

About = Literal["run", "part", "repository", "machine"]
"""The object of a verb, which determines its common options (docs/reference/command-line.md).

`run`: RUN or --run, -C. `part` of a run, such as a subtask: --run, -C. `repository`: -C. `machine`: none.
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """The function of a verb, and the first line of its help. A test compares it with the function's docstring."""

    place: str
    """`module:name` below `fleet.cli.verbs`, or `feature.module:name` for a feature, as in `parts.py`."""
    about: About
    summary: str
    changes: bool = False
    """Whether it changes an existing run. It then has --yes, and asks before it changes a run of another repository."""


@dataclass(frozen=True, slots=True)
class Feature:
    """The extensions that a feature adds. Most values are the `module:name` of a function."""

    verbs: Mapping[str, Mapping[str, Verb]] = field(default_factory=dict)
    """The verbs, by their group in `fleet --help`."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """The tables of the configuration by name: subclasses of `Section`, or dictionaries of them."""
    on: str = ""
    """The configuration key that enables it for a run. The feature is disabled while the key is empty."""
    beside: str = ""
    """A task that runs next to a run while the feature is enabled: a function of the fleet and the run's folder that
    returns an async context manager of `Measures` (`fleet/app/fleet.py`) or None."""
    epics: Mapping[str, str] = field(default_factory=dict)
    """Readers of epics from other sources, by a pattern for the start of the argument: an async function of the
    argument and the environment that returns a `GivenEpic`, or None if it does not apply."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Replacements of the adapters in special runs, by the field of `RunState` that marks such runs: an async function
    of the engine, its adapters and worktrees that returns adapters."""
    takes: str = ""
    """Merges the result of a run into a branch: an async function of the fleet, the run's folder, a function that works
    on a run, the branch and the budget in dollars. Returns a `MergeView`, or the reason for a failure as text."""
    plays: Mapping[str, str] = field(default_factory=dict)
    """Configures and resumes special runs, by the same field: a `Player` of `fleet/app/fleet.py`."""
    servers: str = ""
    """Gives workers the tools of other programs: a function of the wiring that returns `OpenServers`. Loaded if a
    worker names a server."""
    offers: str = ""
    """The other machines that may work for runs while the feature is enabled: a function of the configuration that
    returns, by name, a `MachineOffer` and the maximum number of attempts."""
    reviews: Mapping[str, str] = field(default_factory=dict)
    """Lets models review changes, by the configuration key that enables it for every change. Plans can also request it.
    A function of the fleet, its open models, the adapters, the engine and the budget of a run that returns
    `ChangeReviews`. Loaded for the first review."""
    joins: str = ""
    """Lets other machines work on a run: a function of the fleet, the run's folder and state, its worktrees and its
    calls that returns an async context manager of `OtherMachines`. Loaded when a run first requires a node."""
    tries: str = ""
    """Runs the setup command and the gate for `fleet doctor --try`: a function of the fleet, the repository and a
    callback for each step (or None) that returns an async iterator of `Finding`s."""
    keeps: str = ""
    """Saves data of a run before it is deleted: a function of the run's folder and the state directory."""
    scrape: str = ""
    """Answers /metrics in the web UI: a function of the state directory that returns a `Scrape`."""
    shows: str = ""
    """Serves the web UI of a running run for `--web`: a function of the run's folder."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """The pages of a run in the web UI, by the last part of their path: a function of the run's facts, the time,
    whether a process runs it (`alive`) and the path of the run (`back`) that returns HTML, or None if the run has not
    started."""
    proposes: str = ""
    """Writes sections of a run's report for a pull request, as Markdown: a function of a `ReportData`, the lines at the
    top (`lead`), the most important points (`first`) and the names of the sections (`parts`)."""
    findings: str = ""
    """The checks for `fleet doctor`: a function of the fleet that returns an async iterator of `Finding`s. Parts that
    are not configured are skipped."""


FEATURES: dict[str, Feature] = {
    "audit": Feature(
        verbs={
            "Result": {
                "audit": Verb(
                    "audit.verbs:audit", "run", "Check every commit on a run's result branch against the journal."
                ),
                "commits": Verb("audit.verbs:commits", "repository", "Show statistics about commits made by fleet."),
            }
        }
    ),
    "completion": Feature(
        verbs={
            "This machine": {
                "completion": Verb("completion.verbs:completion", "machine", "Print or install shell completion.")
            }
        }
    ),
    "doctor": Feature(
        verbs={
            "This machine": {
                "doctor": Verb("doctor.verbs:doctor", "repository", "Check this machine and suggest fixes.")
            }
        }
    ),
    "forge": Feature(
        verbs={
            "Result": {
                "tend": Verb(
                    "forge.verbs:tend", "repository", "Address CI failures and review comments on a pull request."
                ),
                "pr": Verb(
                    "forge.verbs:pr",
                    "run",
                    "Open a draft pull request with a run's result.",
                    changes=True,
                ),
            }
        },
        sections={"tend": "forge.settings:Tend"},
        epics={r"[a-z]+:[^\s#!]+[#!]\d|https?://": "forge.issue_epic:read_issue_epic"},
        findings="forge.program:findings",
    ),
    "merge": Feature(
        verbs={
            "Result": {
                "merge": Verb("merge.verbs:merge", "run", "Merge a run's result into your branch.", changes=True)
            }
        },
        adapters={"relanding": "merge.relanding:relanding_adapters"},
        takes="merge.merge_result:take_into",
    ),
    "serve_acp": Feature(
        verbs={
            "Other programs and machines": {
                "acp": Verb(
                    "serve_acp.verbs:acp", "machine", "Run as an agent for your editor (Agent Client Protocol)."
                )
            }
        }
    ),
    "serve_mcp": Feature(
        verbs={
            "Other programs and machines": {
                "mcp": Verb("serve_mcp.verbs:mcp", "repository", "Run as an MCP server for other agents.")
            }
        }
    ),
    "notify": Feature(
        verbs={
            "Other programs and machines": {
                "notify": Verb(
                    "notify.verbs:notify", "machine", "Test notification channels, and list or send notifications."
                )
            }
        },
        sections={"notify": "notify.settings:Notify"},
        on="notify.channels",
        beside="notify.notifier:keeping_notifier",
        findings="notify.notifier:notify_findings",
    ),
    "recipes": Feature(
        verbs={
            "Plans and settings": {
                "try": Verb(
                    "recipes.verbs:try_command",
                    "repository",
                    "Test the setup command and the gate in the sandbox, without a run.",
                ),
                "init": Verb(
                    "recipes.verbs:init", "repository", "Detect how to test this repository and write fleet.toml."
                ),
            }
        },
        tries="recipes.trials:trial_findings",
    ),
    "rehearse": Feature(
        verbs={
            "Work": {
                "rehearse": Verb(
                    "rehearse.verbs:rehearse",
                    "repository",
                    "Replay the repository's last commits as a run, without calling a model.",
                )
            }
        },
        adapters={"rehearsal": "rehearse.carry_out:rehearsal_adapters"},
        plays={"rehearsal": "rehearse.carry_out:PLAYER"},
    ),
    "reviews": Feature(
        sections={"reviewer": "reviews.settings:Reviewer"},
        reviews={"reviewer.look_for": "reviews.reviews:open_reviews"},
        findings="reviews.reviews:findings",
    ),
    "tool_servers": Feature(
        sections={"mcp": "tool_servers.settings:Servers"},
        servers="tool_servers.configured:servers",
        findings="tool_servers.configured:findings",
    ),
    "nodes": Feature(
        verbs={
            "Other programs and machines": {
                "node": Verb(
                    "nodes.verbs:node", "machine", "Serve as a worker node for another machine, over stdin and stdout."
                ),
                "nodes": Verb(
                    "nodes.verbs:nodes",
                    "part",
                    "Manage worker nodes: list, check, drain, add or clean.",
                    changes=True,
                ),
            }
        },
        sections={"nodes": "nodes.settings:Nodes"},
        on="nodes",
        offers="nodes.settings:offers",
        joins="nodes.manager_side:join_nodes",
        findings="nodes.node_admin:findings",
    ),
    "metrics": Feature(
        verbs={
            "Other programs and machines": {
                "metrics": Verb("dashboards.metrics.verbs:metrics", "machine", "Serve Prometheus metrics for all runs.")
            }
        },
        sections={"metrics": "dashboards.metrics.settings:Metrics"},
        on="metrics.listen",
        beside="dashboards.metrics.server:exporting_beside",
        keeps="dashboards.metrics.counters:keep_metrics",
        scrape="dashboards.metrics.server:scrape_of",
    ),
    "report": Feature(
        verbs={"Result": {"report": Verb("dashboards.report.verbs:report", "run", "Generate the report of a run.")}},
        pages={"report": "dashboards.report.drawing:run_page"},
        proposes="dashboards.report.drawing:proposal",
    ),
    "web": Feature(
        verbs={"Look": {"web": Verb("dashboards.web.verbs:web", "machine", "Serve the web UI for all runs.")}},
        shows="dashboards.web.verbs:start_pages",
    ),
    "simulated": Feature(
        verbs={
            "Other programs and machines": {
                "simulate": Verb(
                    "agents.simulated.verbs:simulate", "machine", "Serve a simulated model, for tests and demos."
                )
            }
        }
    ),
    "traces": Feature(
        verbs={"Result": {"trace": Verb("traces.verbs:trace", "run", "Export a run as an OpenTelemetry trace.")}},
        sections={"traces": "traces.settings:Traces"},
        on="traces.otlp",
        beside="traces.sender:sending_traces",
    ),
}
