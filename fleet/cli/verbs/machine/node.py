"""`fleet node`: this machine works for the runs of another one."""

from typing import Annotated

import typer

from fleet.app.nodes.node_process import greet, run_node
from fleet.cli import common
from fleet.cli.common import AsJson, ConfigFile
from fleet.config.environment import current
from fleet.config.load import load_config
from fleet.core.views.nodes_view import GreetingView


def node(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Speak the protocol of nodes on standard input and output.")
    ] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Work for runs of another machine, over standard streams.

    A manager starts it, by the command of [nodes.NAME] in its configuration. Nothing listens on this machine: it works
    as long as the stream lasts, and ends by itself when it does not hear its manager. Without --stdio it prints what it
    would tell a manager.

    \b
    Examples:
      fleet node                          what this machine would offer
      ssh builder fleet node --stdio      as [nodes.builder] command
    """
    loaded = load_config(environ=current(), config_file=config)
    if stdio:
        common.run_async(lambda: run_node(loaded.config, current()))
        return
    greeting = common.run_async(lambda: greet(loaded.config, current()))
    view = GreetingView(
        greeting.version, greeting.protocol, greeting.processors, greeting.memory_bytes, list(greeting.problems)
    )
    if as_json:
        common.show_json(view)
        return
    common.show(
        [
            f"fleet {view.version}, protocol {view.protocol}",
            f"{view.processors} processors, {view.memory_bytes / 1e9:.1f} GB of memory",
            *(view.problems or ["ready to work for other machines"]),
        ]
    )
    raise typer.Exit(3 if view.problems else 0)
