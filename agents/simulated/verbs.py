"""The verb `fleet simulate`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fleet.app.input_files import read_data
from fleet.cli.common import AsJson, show_json
from fleet.read.base_view import ServerView


def simulate(
    script: Annotated[
        Path, typer.Argument(metavar="FILE", help="The script of the simulated model: a JSON or TOML file.")
    ],
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port to listen on. 0 chooses a free port.")
    ] = 0,
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    as_json: AsJson = False,
) -> None:
    """Serve a simulated model, for tests and demos.

    The server implements the Messages API and answers from a script. Runs that use it are free and need no key.

    \b
    Examples:
      fleet simulate script.toml --port 8080
      fleet run epic.md --base-url http://127.0.0.1:8080
    """
    from agents.simulated.script import parse_script  # noqa: PLC0415 - slow to import, as the server
    from agents.simulated.server import run_simulation  # noqa: PLC0415

    def announce(url: str) -> None:
        if as_json:
            show_json(ServerView(url))
        else:
            typer.echo(f"simulated model listening on {url}")
        sys.stdout.flush()

    run_simulation(parse_script(read_data(script), source=str(script)), host, port, announce)
