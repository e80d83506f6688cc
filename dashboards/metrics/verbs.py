"""The `metrics` verb."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from dashboards.address import parse_address
from dashboards.metrics.settings import Metrics
from fleet.cli import common
from fleet.cli.common import AsJson, ConfigFile
from fleet.cli.verbosity import show_note
from fleet.config.environment import current
from fleet.config.load import load_config
from fleet.errors import UsageError
from fleet.read.base_view import ServerView
from fleet.runs.run_folder import all_runs

STOPS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def metrics(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The address to listen on (default: 127.0.0.1:9464). Port 0 selects a free port.",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Print the metrics once and exit, for the textfile collector of node_exporter."),
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Serve Prometheus metrics for all runs.

    It only reads journals. You can start and stop it at any time, on any machine with access to the state directory.

    \b
    Examples:
      fleet metrics
      fleet metrics --listen 127.0.0.1:9500
      fleet metrics --once > /var/lib/node_exporter/fleet.prom
    """
    from dashboards.metrics.server import (  # noqa: PLC0415 - prometheus_client is slow to import
        DEFAULT_PORT,
        exporting,
        scrape_of,
    )

    loaded = load_config(environ=current(), config_file=config, repository=None).config
    settings, state_dir = loaded.of(Metrics), Path(loaded.state.dir)
    address = parse_address(listen or settings.listen or str(DEFAULT_PORT))
    if once:
        if as_json or listen:
            raise UsageError("--once can't be used with --listen or --json", hint="run `fleet metrics --once`")
        typer.echo(scrape_of(state_dir)("")[0], nl=False)
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # in all threads, so that `sigwait` below receives them
    with exporting(lambda: all_runs(state_dir), state_dir, address, settings.hosts) as exporter:
        url = f"http://{exporter.address}/metrics"
        if as_json:
            common.show_json(ServerView(url))
            sys.stdout.flush()
        show_note(f"serving metrics of all runs in {state_dir} at {url} (press Ctrl-C to stop)")
        signal.sigwait(STOPS)
