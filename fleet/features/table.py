"""The features, one entry each. Literal: nothing here is imported before it is used.

A feature is the folder of its name beside this file, or in `dashboards`. Without the folder and its entry the rest of
the program works.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

About = Literal["run", "part", "repository", "machine"]
"""What a verb is about, which decides the options it has in common with others (docs/reference/command-line.md).

`run`: RUN or --run, -C. `part` of a run, such as a subtask: --run, -C. `repository`: -C. `machine`: none of them.
"""


@dataclass(frozen=True, slots=True)
class Verb:
    """The function of a verb, and the first line of its help, which a test compares with the function's docstring."""

    place: str
    """`module:name`, below `fleet.cli.verbs`; that of a feature: `feature.module:name`, as in `parts.py`."""
    about: About
    summary: str
    changes: bool = False
    """Whether it changes a run that exists. It then has --yes, and takes no other repository's run without asking."""


@dataclass(frozen=True, slots=True)
class Feature:
    """What a feature adds."""

    verbs: Mapping[str, Mapping[str, Verb]] = field(default_factory=dict)
    """By the group of `fleet --help` that lists them."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Its tables of the configuration by their names: subclasses of `Section`, or dictionaries of them."""
    on: str = ""
    """The key of the configuration that turns it on for a run: it is off while this is empty."""
    beside: str = ""
    """What is open beside a run while the feature is on: a function of the fleet and the run's folder that returns an
    async context manager of what measures this process (`Measures` of `fleet/app/fleet.py`), or of None."""
    epics: Mapping[str, str] = field(default_factory=dict)
    """What reads an epic that is kept elsewhere, by a pattern of how its name on the command line begins: an async
    function of that name and the environment that returns a `GivenEpic`, or None if it is no such name."""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """What takes the place of the adapters in runs of a kind of its own, by the field of `RunState` that only such runs
    have: an async function of the engine, its adapters and worktrees that returns adapters."""
    takes: str = ""
    """What brings the result of a run into a branch: an async function of the fleet, the run's folder, a function that
    works on a run, the branch and the dollars it may cost. It returns a `MergeView`, or text: why not."""
    plays: Mapping[str, str] = field(default_factory=dict)
    """What configures and resumes runs of a kind of its own, by the same field: a `Player` of `fleet/app/fleet.py`."""
    servers: str = ""
    """What gives workers tools of other programs: a function of the wiring that returns `OpenServers`. It is loaded if
    a worker names a server."""
    offers: str = ""
    """The other machines that may work for runs, while the feature is on: a function of the configuration that returns
    a `MachineOffer` by the name of each, with how many attempts it works on at most."""
    reviews: Mapping[str, str] = field(default_factory=dict)
    """What has models review changes, by the key of the configuration that has every change reviewed; plans may ask for
    it, too. A function of the fleet, its open models, the adapters, the engine and the budget of a run that returns
    `ChangeReviews`. It is loaded when a change is first to be reviewed."""
    joins: str = ""
    """What has other machines work on a run: a function of the fleet, the run's folder and state, its worktrees and its
    calls that returns an async context manager of `OtherMachines`. It is loaded when a run first wants a node."""
    tries: str = ""
    """How the doctor tries set-up and gate, with `--try`: a function of the fleet, the repository and what is called
    when a step begins (or None) that returns an async iterator of `Finding`s."""
    keeps: str = ""
    """What it keeps of a run that is about to be deleted: a function of the run's folder and the state directory."""
    scrape: str = ""
    """What the pages in a browser answer at /metrics: a function of the state directory that returns a `Scrape`."""
    shows: str = ""
    """What shows a run in a browser while it is at work, with `--web`: a function of the run's folder."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """What it adds to the pages of a run in a browser, by the last step of their addresses: a function of the run's
    facts, the time, whether a process runs it (`alive`) and the address of the run (`back`) that returns HTML, or None
    for a run that has not started."""
    proposes: str = ""
    """What writes sections of a run's report for a pull request, as Markdown: a function of a `ReportData`, the lines
    at its head (`lead`), what to look at first (`first`) and the names of the sections (`parts`)."""
    findings: str = ""
    """What the doctor finds about it: a function of the fleet that returns an async iterator of `Finding`s. Of what is
    not configured there is none."""


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
        takes="merge.taking:take_into",
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
                    "notify.verbs:notify", "machine", "Test notification channels; list or send notifications."
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
        findings="nodes.care:findings",
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
        keeps="dashboards.metrics.tally:keep_metrics",
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
