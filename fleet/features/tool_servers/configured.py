"""The servers of `[mcp]`: their settings, with variables of the environment, and what the doctor finds about them."""

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
    Listing,
    McpServers,
    ServerSettings,
    open_servers,
    tools_of_servers,
)
from fleet.features.tool_servers.settings import ServerSection
from fleet.read.base_view import Finding
from worktrees.sandbox.overlay_mount import TAG, this_manager

INSTALL = "pip install 'worktree-fleet[mcp]'"
TIMEOUT_S = 60.0
GIVEN = ("PATH", "HOME", "LANG")
SHOWN_FINDINGS = 3  # tools that are left out, with their reasons


def servers(wiring: Wiring) -> OpenServers:
    """Opens the servers that workers name. Raises `UsageError` with the key that is wrong."""
    return partial(open_servers, servers_of(wiring.config, wiring.environ))


def has_packages() -> bool:
    """Whether the extra `mcp` is installed."""
    return find_spec("mcp") is not None


def servers_of(config: Config, environ: Mapping[str, str]) -> dict[str, ServerSettings]:
    """The servers that some worker names. Raises `UsageError` with the key that is wrong."""
    named: dict[str, str] = {}
    servers = config.named(ServerSection)
    for worker, settings in config.workers.items():
        for name in settings.mcp:
            if name not in servers:
                hint = did_you_mean(name, servers).lstrip("; ") or f"set its command: [mcp.{name}]"
                raise UsageError(f"workers.{worker}.mcp: there is no server {name!r}", hint=hint)
            named.setdefault(name, worker)
    if named and not has_packages():
        worker = next(iter(named.values()))
        raise UsageError(f"workers.{worker}.mcp: servers need more packages", hint=INSTALL)
    return {name: server_settings(name, servers[name], environ) for name in named}


def server_settings(name: str, server: ServerSection, environ: Mapping[str, str]) -> ServerSettings:
    """The settings of one server, tagged so that it is ended if this process is killed. Raises `UsageError`."""
    key, wanted = f"mcp.{name}", server.pass_environment or ()
    if missing := ", ".join(each for each in wanted if each not in environ):
        raise UsageError(f"{key}.pass_environment: {missing} is not set", hint="set it, or remove it from the list")
    try:
        words = tuple(shlex.split(server.command))
    except ValueError as error:
        raise UsageError(f"{key}.command: {server.command!r} can't be split into words: {error}") from error
    if not words:
        raise UsageError(f"{key}.command: is empty")
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
    """Each server is started, asked for its tools, and stopped; none of them is called."""
    if not (configured := wiring.config.named(ServerSection)):
        return
    if not has_packages():
        yield Finding("mcp", ok=False, says="not installed: no servers for workers", fix=INSTALL)
        return
    settings: dict[str, ServerSettings] = {}
    for name, server in configured.items():
        try:
            settings[name] = server_settings(name, server, wiring.environ)
        except FleetError as error:
            yield Finding("mcp", ok=False, says=f"{name}: not as configured", fix=str(error))
    async with open_servers(settings) as servers:
        listings = await servers.listed(list(settings))
    for name, listing in listings.items():
        users = [worker for worker, each in wiring.config.workers.items() if name in each.mcp]
        yield _finding(name, listing, users)


def _finding(name: str, listing: Listing, users: list[str]) -> Finding:
    if not listing.tools:
        why = "; ".join(map(safe, listing.problems[:SHOWN_FINDINGS])) or "it has none"
        return Finding(
            "mcp", ok=False, says=f"{name}: offers no tool: {why}", fix=f"try its command: mcp.{name}.command"
        )
    used = f"for {', '.join(users)}" if users else "for no worker: workers.NAME.mcp gives its tools to one"
    says = f"{name}: {counted(len(listing.tools), 'tool')}, {_cost(listing)}, {used}"
    left_out = "; ".join(map(safe, listing.problems[:SHOWN_FINDINGS]))
    more = f" and {len(listing.problems) - SHOWN_FINDINGS} more" if len(listing.problems) > SHOWN_FINDINGS else ""
    return Finding("mcp", ok=True, says=says, fix=f"left out: {left_out}{more}" if left_out else "")


def _cost(listing: Listing) -> str:
    """What its tools add to every prompt."""
    given = tools_of_servers(listing.tools, McpServers({}), 0)
    tokens = len(json.dumps([tool.declaration for tool in given])) // CHARACTERS_PER_TOKEN
    how = "searched for" if len(listing.tools) > MOST_DECLARED else "declared"
    return f"{how}, some {tokens} tokens in each prompt"
