"""The servers in `[mcp]`: their settings, including environment variables, and the findings of `fleet doctor`."""

import json
import shlex
from collections.abc import AsyncIterator, Mapping
from functools import partial
from importlib.util import find_spec

from agents.models.answer import CHARACTERS_PER_TOKEN
from agents.tools.tool import OpenServers
from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.app.wiring import Wiring
from fleet.config.schema import Config
from fleet.core.base.ids import did_you_mean
from fleet.errors import FleetError, UsageError
from fleet.features.tool_servers.servers import (
    MOST_DECLARED,
    McpServers,
    ServerSettings,
    ToolListing,
    open_servers,
    tools_of_servers,
)
from fleet.features.tool_servers.settings import ServerSection
from fleet.read.base_view import Finding
from worktrees.sandbox.overlay_mount import TAG, this_manager

INSTALL = "pip install 'worktree-fleet[mcp]'"
TIMEOUT_S = 60.0
GIVEN = ("PATH", "HOME", "LANG")
SHOWN_FINDINGS = 3  # omitted tools, with their reasons


def servers(wiring: Wiring) -> OpenServers:
    """Open the servers that workers use. Raises `UsageError` that names the wrong key."""
    return partial(open_servers, servers_of(wiring.config, wiring.environ))


def has_packages() -> bool:
    """Whether the extra `mcp` is installed."""
    return find_spec("mcp") is not None


def servers_of(config: Config, environ: Mapping[str, str]) -> dict[str, ServerSettings]:
    """Return the settings of the servers that workers use. Raises `UsageError` that names the wrong key."""
    named: dict[str, str] = {}
    servers = config.named(ServerSection)
    for worker, settings in config.workers.items():
        for name in settings.mcp:
            if name not in servers:
                hint = did_you_mean(name, servers).lstrip("; ") or f"set `command` in [mcp.{name}]"
                raise UsageError(f"workers.{worker}.mcp: no server {name!r} is configured", hint=hint)
            named.setdefault(name, worker)
    if named and not has_packages():
        worker = next(iter(named.values()))
        raise UsageError(f"workers.{worker}.mcp: MCP servers require packages that are not installed", hint=INSTALL)
    return {name: server_settings(name, servers[name], environ) for name in named}


def server_settings(name: str, server: ServerSection, environ: Mapping[str, str]) -> ServerSettings:
    """Return the settings of a server, tagged so that it is stopped if this process is killed. Raises `UsageError`."""
    key, wanted = f"mcp.{name}", server.pass_environment or ()
    if missing := ", ".join(each for each in wanted if each not in environ):
        raise UsageError(f"{key}.pass_environment: {missing} is not set", hint="set it, or remove it from the list")
    try:
        words = tuple(shlex.split(server.command))
    except ValueError as error:
        raise UsageError(f"{key}.command: invalid quoting in {server.command!r}: {error}") from error
    if not words:
        raise UsageError(f"{key}.command is empty")
    passed = {each: environ[each] for each in wanted}
    usual = {each: environ[each] for each in GIVEN if each in environ}
    return ServerSettings(
        name=name,
        command=words,
        environment={**usual, **server.environment, **passed, TAG: this_manager().tag("mcp")},
        secrets=tuple(passed.values()),
        tools=server.tools or (),
        timeout_s=server.timeout_s or TIMEOUT_S,
    )


def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    return mcp_findings(fleet.wiring)


async def mcp_findings(wiring: Wiring) -> AsyncIterator[Finding]:
    """Start each server, list its tools and stop it. No tool is called."""
    if not (configured := wiring.config.named(ServerSection)):
        return
    if not has_packages():
        yield Finding("mcp", ok=False, says="packages for MCP servers are not installed", fix=INSTALL)
        return
    settings: dict[str, ServerSettings] = {}
    for name, server in configured.items():
        try:
            settings[name] = server_settings(name, server, wiring.environ)
        except FleetError as error:
            yield Finding("mcp", ok=False, says=f"{name}: invalid configuration", fix=str(error))
    async with open_servers(settings) as servers:
        listings = await servers.listed(list(settings))
    for name, listing in listings.items():
        users = [worker for worker, each in wiring.config.workers.items() if name in each.mcp]
        yield _finding(name, listing, users)


def _finding(name: str, listing: ToolListing, users: list[str]) -> Finding:
    if not listing.tools:
        why = "; ".join(map(safe, listing.problems[:SHOWN_FINDINGS])) or "the server lists none"
        return Finding(
            "mcp",
            ok=False,
            says=f"{name}: no usable tools: {why}",
            fix=f"run the command of mcp.{name}.command manually",
        )
    used = f"used by {', '.join(users)}" if users else "not used by any worker (set workers.NAME.mcp to use it)"
    says = f"{name}: {counted(len(listing.tools), 'tool')}, {_cost(listing)}, {used}"
    left_out = "; ".join(map(safe, listing.problems[:SHOWN_FINDINGS]))
    more = f" and {len(listing.problems) - SHOWN_FINDINGS} more" if len(listing.problems) > SHOWN_FINDINGS else ""
    return Finding(
        "mcp", ok=True, says=says, fix=f"left out: {left_out}{more}" if left_out else "", warning=bool(left_out)
    )


def _cost(listing: ToolListing) -> str:
    """Describe how much its tools add to every prompt."""
    given = tools_of_servers(listing.tools, McpServers({}), 0)
    tokens = len(json.dumps([tool.declaration for tool in given])) // CHARACTERS_PER_TOKEN
    how = "searched for" if len(listing.tools) > MOST_DECLARED else "declared"
    return f"{how}, about {tokens} tokens in each prompt"
