"""Verbs that give account: metrics."""

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli.common import ConfigFile

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def register(app: typer.Typer) -> None:
    for verb in (metrics,):
        app.command()(verb)


def metrics(
    listen: Annotated[
        str | None, typer.Option("--listen", help="HOST:PORT, 127.0.0.1:9464 by default; port 0 chooses a free one.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Serve the figures of all runs for Prometheus, until Ctrl-C.

    Reads journals only: it can be started and stopped at any time, on any machine that sees the state directory.

    \b
    Examples:
      fleet metrics
      fleet metrics --listen 127.0.0.1:9500
    """
    from dashboards.metrics.server import DEFAULT_PORT, parse_address
    from fleet.cli.exporter import exporting
    from fleet.config import load_config
    from fleet.folders import all_runs

    own = load_config(environ=os.environ, config_file=config, repository=None).config
    address = parse_address(listen or own.metrics.listen or str(DEFAULT_PORT))
    where = Path(own.state.dir)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)  # in all threads: the one that waits for them takes them
    with exporting(lambda: all_runs(where), where, address, own.metrics.hosts) as exporter:
        typer.echo(f"metrics of all runs in {where} at http://{exporter.address}/metrics; Ctrl-C stops", err=True)
        signal.sigwait(STOP)
