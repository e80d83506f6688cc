"""The verb `fleet acp`: an ACP agent for editors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agents.workers.command import ACP_EXTRA, has_acp
from fleet.cli import common
from fleet.cli.common import (
    AsJson,
    BaseUrl,
    Budget,
    ConfigFile,
    Review,
    Sandbox,
    Workers,
    flags,
    limits_of,
    reviewing_of,
)
from fleet.config.load import Loaded
from fleet.errors import FleetError
from fleet.features.serve_acp.slash_commands import COMMANDS


@dataclass(frozen=True, slots=True)
class EditorCommandView:
    """A slash command of an editor session."""

    name: str
    """The name of the command, without the slash."""
    takes: str
    """The arguments, or empty."""
    description: str
    """The description that the editor shows."""


def acp(
    budget: Budget = None,
    workers: Workers = None,
    review: Review = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the commands of a session and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run as an agent for your editor (Agent Client Protocol).

    Your editor starts it and communicates over stdin and stdout. A prompt is an epic, and its session is the run, in
    the repository that the editor has open. The editor shows the plan and the progress, and asks you for approvals and
    answers. Closing the editor does not stop the run. You can open the session again.

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
        raise FleetError("`fleet acp` requires an optional package", hint=ACP_EXTRA)
    reviewing = reviewing_of(review, yes=False, by_human=True)
    limits = limits_of(workers=workers, budget=budget, minutes=None, tokens=None, attempts=None)
    given = flags(limits, base_url=base_url, sandbox=sandbox)
    file = config.absolute() if config is not None else None

    def configure(root: Path) -> Loaded:
        return common.configuration(root, file, given)

    from fleet.features.serve_acp.agent import EditorAgent, serve  # noqa: PLC0415 - the protocol's messages take 0.3 s to import

    common.run_async(lambda: serve(EditorAgent(configure, reviewing)))
