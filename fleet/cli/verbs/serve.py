"""Verbs that serve over HTTP: metrics of all runs, and a simulated model."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from agents.workers.command import ACP_EXTRA, has_acp
from dashboards.address import parse_address
from fleet.app.input_files import read_data
from fleet.app.wiring import INSTALL, has_packages
from fleet.cli import common
from fleet.cli.acp.slash_commands import COMMANDS
from fleet.cli.common import (
    HERE,
    AsJson,
    BaseUrl,
    Budget,
    ConfigFile,
    Repo,
    Review,
    Sandbox,
    Workers,
    flags,
    limits_of,
    reviewing_of,
)
from fleet.cli.verbosity import show_note
from fleet.config.environment import current
from fleet.config.load import Loaded, load_config
from fleet.errors import FleetError, UsageError
from fleet.read.program_view import EditorCommandView, McpToolView, ServerView
from fleet.runs.run_folder import all_runs, root_of

STOPS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def metrics(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="HOST:PORT, 127.0.0.1:9464 by default; port 0 chooses a free one."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the metrics once and exit, for node_exporter's textfile collector.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Serve metrics of all runs for Prometheus.

    Only reads journals: it can be started and stopped at any time, on any machine that sees the state directory.

    \b
    Examples:
      fleet metrics
      fleet metrics --listen 127.0.0.1:9500
      fleet metrics --once > /var/lib/node_exporter/fleet.prom
    """
    from dashboards.metrics.server import DEFAULT_PORT  # noqa: PLC0415 - prometheus_client is slow to import
    from fleet.cli.live.exporter import Exporter, exporting  # noqa: PLC0415

    settings = load_config(environ=current(), config_file=config, repository=None).config
    address = parse_address(listen or settings.metrics.listen or str(DEFAULT_PORT))
    state_dir = Path(settings.state.dir)
    if once:
        if as_json or listen:
            raise UsageError("--once prints the metrics; it takes neither --listen nor --json")
        typer.echo(Exporter(lambda: all_runs(state_dir), state_dir).exposition.scrape("")[0], nl=False)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # in all threads, so that `sigwait` below takes them
    with exporting(lambda: all_runs(state_dir), state_dir, address, settings.metrics.hosts) as exporter:
        url = f"http://{exporter.address}/metrics"
        if as_json:
            common.show_json(ServerView(url))
            sys.stdout.flush()
        show_note(f"metrics of all runs in {state_dir} at {url}; Ctrl-C stops")
        signal.sigwait(STOPS)


def simulate(
    script: Annotated[
        Path, typer.Argument(metavar="FILE", help="The script of the simulated model: a JSON or TOML file.")
    ],
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 chooses a free one.")] = 0,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Serve a simulated model that plays a script.

    It implements the Messages API, so that a run needs no key and costs nothing.

    \b
    Examples:
      fleet simulate script.toml --port 8080
      fleet run epic.md --base-url http://127.0.0.1:8080
    """
    from agents.simulated.script import parse_script  # noqa: PLC0415 - slow to import, as the server
    from agents.simulated.server import run_simulation  # noqa: PLC0415

    def announce(url: str) -> None:
        if as_json:
            common.show_json(ServerView(url))
        else:
            typer.echo(f"simulated model listening on {url}")
        sys.stdout.flush()

    run_simulation(parse_script(read_data(script), source=str(script)), host, port, announce)


# ---- mcp -------------------------------------------------------------------------------------------------------------
# `fleet mcp`: the fleet as a server of the Model Context Protocol, for another agent.


def mcp(
    repo: Repo = HERE,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only the tools that look.")] = False,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD", min=0, help="What all runs that it starts may cost together."),
    ] = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the tools, and serve nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Offer the fleet to another agent, as tools (MCP).

    An agent starts it. The tools plan, run, wait, look, answer and approve, for the runs of one repository only: the
    one that is named here. A run that an agent starts needs a budget, and never gets more than your configuration
    allows.

    \b
    Examples:
      fleet mcp --list
      claude mcp add fleet -- fleet mcp -C ~/service --budget 20
      fleet mcp --read-only
    """
    from fleet.cli.mcp.tools import offered  # noqa: PLC0415 - what runs start with is slow to import

    if only_list:
        views = [
            McpToolView(tool.name, tool.effect, tool.description) for tool in offered(read_only=read_only).values()
        ]
        if as_json:
            common.show_json(views)
        else:
            common.show(f"{view.name:<8} {view.effect:<8} {view.description}" for view in views)
        return
    if not has_packages():
        raise FleetError("fleet mcp needs more packages", hint=INSTALL)
    root = _repository(repo)
    from fleet.cli.mcp.desk import Desk  # noqa: PLC0415
    from fleet.cli.mcp.server import serve  # noqa: PLC0415 - the SDK is slow to import

    desk = Desk(root, config.absolute() if config is not None else None, base_url, sandbox, budget)
    common.configuration(root, desk.config_file)  # a mistake in it is better known now
    common.run_async(lambda: serve(desk, read_only=read_only))


def _repository(repo: Path) -> Path:
    root = root_of(repo)
    if root is None:
        raise UsageError(f"{repo.absolute()} is not in a git repository", hint="fleet mcp -C DIR names one")
    return root


# ---- acp -------------------------------------------------------------------------------------------------------------
# `fleet acp`: the fleet as an agent of the Agent Client Protocol, for an editor.


def acp(
    budget: Budget = None,
    workers: Workers = None,
    review: Review = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print what may be typed in a session.")] = False,
    as_json: AsJson = False,
) -> None:
    """Offer the fleet to an editor, as an agent (ACP).

    An editor starts it and speaks with it over standard input and output. A prompt is an epic; its session is the run,
    in the repository that the editor has opened. The editor shows the plan and what happens, and asks for approvals and
    answers. Leaving it stops nothing: the session can be opened again.

    \b
    Examples:
      fleet acp --budget 20
      fleet acp --review auto --workers 8
      fleet acp --list
    """
    if only_list:
        views = [EditorCommandView(name, each.hint, each.description) for name, each in COMMANDS.items()]
        if as_json:
            common.show_json(views)
        else:
            common.show(f"/{f'{view.name} {view.takes}':<22} {view.description}" for view in views)
        return
    if not has_acp():
        raise FleetError("fleet acp needs one more package", hint=ACP_EXTRA)
    reviewing = reviewing_of(review, yes=False, by_human=True)
    limits = limits_of(workers=workers, budget=budget, minutes=None, tokens=None, attempts=None)
    given = flags(limits, base_url=base_url, sandbox=sandbox)
    file = config.absolute() if config is not None else None

    def configure(root: Path) -> Loaded:
        return common.configuration(root, file, given)

    from fleet.cli.acp.agent import EditorAgent, serve  # noqa: PLC0415 - the protocol's messages take 0.3 s to import

    common.run_async(lambda: serve(EditorAgent(configure, reviewing)))
