"""The verb `fleet mcp`: an MCP server for other agents."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fleet.cli import common
from fleet.cli.common import HERE, AsJson, BaseUrl, ConfigFile, Repo, Sandbox
from fleet.errors import FleetError, UsageError
from fleet.runs.run_folder import root_of


@dataclass(frozen=True, slots=True)
class McpToolView:
    """A tool that `fleet mcp` offers."""

    name: str
    """The name of the tool."""
    effect: str
    """`reads`: does not change anything. `starts`: starts a run. `decides`: acts on your behalf."""
    description: str
    """The description that other agents read."""


def mcp(
    repo: Repo = HERE,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only read-only tools.")] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", metavar="USD", min=0, help="Maximum total cost of the runs that agents start, in USD."
        ),
    ] = None,
    base_url: BaseUrl = None,
    sandbox: Sandbox = None,
    config: ConfigFile = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the tools and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run as an MCP server for other agents.

    An agent starts this server. Its tools plan, start and watch runs, answer questions and approve plans, in one
    repository only. A run started by an agent requires a budget and can't exceed the limits of your configuration.

    \b
    Examples:
      fleet mcp --list
      claude mcp add fleet -- fleet mcp -C ~/service --budget 20
      fleet mcp --read-only
    """
    from fleet.features.serve_mcp.tools import offered  # noqa: PLC0415 - slow to import

    if only_list:
        views = [
            McpToolView(tool.name, tool.effect, tool.description) for tool in offered(read_only=read_only).values()
        ]
        if as_json:
            common.show_json(views)
        else:
            common.show(f"{view.name:<8} {view.effect:<8} {view.description}" for view in views)
        return
    if find_spec("mcp") is None:
        raise FleetError("`fleet mcp` requires optional packages", hint="pip install 'worktree-fleet[mcp]'")
    root = _repository(repo)
    from fleet.features.serve_mcp.server import serve  # noqa: PLC0415 - the SDK is slow to import
    from fleet.features.serve_mcp.tool_handlers import ToolHandlers  # noqa: PLC0415

    desk = ToolHandlers(root, config.absolute() if config is not None else None, base_url, sandbox, budget)
    common.configuration(root, desk.config_file)  # report mistakes in it immediately
    common.run_async(lambda: serve(desk, read_only=read_only))


def _repository(repo: Path) -> Path:
    root = root_of(repo)
    if root is None:
        raise UsageError(
            f"{repo.absolute()} is not in a git repository", hint="use `fleet mcp -C DIR` to select a repository"
        )
    return root
