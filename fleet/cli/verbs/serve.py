"""Verbs that serve over HTTP: metrics of all runs, and a simulated model."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from dashboards.address import parse_address
from fleet.app.input_files import read_data
from fleet.cli import common
from fleet.cli.common import (
    AsJson,
    ConfigFile,
)
from fleet.cli.verbosity import show_note
from fleet.config.environment import current
from fleet.config.load import load_config
from fleet.errors import UsageError
from fleet.read.program_view import ServerView
from fleet.runs.run_folder import all_runs

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
