"""What the doctor finds about MCP: whether its packages are there, and whether the servers of workers answer."""

import json
from collections.abc import AsyncIterator

from agents.mcp.catalog import Listing
from agents.mcp.servers import NO_SERVERS, open_servers
from agents.mcp.settings import ServerSettings
from agents.models.answer import CHARACTERS_PER_TOKEN
from agents.tools.servers import MOST_DECLARED, tools_of_servers
from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.mcp_servers import INSTALL, has_packages, server_settings
from fleet.app.wiring import Wiring
from fleet.core.views.machine.finding import Finding
from fleet.errors import FleetError

SHOWN = 3  # tools that are left out, with their reasons


async def mcp_findings(wiring: Wiring) -> AsyncIterator[Finding]:
    """Each server is started, asked for its tools, and stopped; none of them is called."""
    if not has_packages():
        needed = bool(wiring.config.mcp)
        yield Finding("mcp", ok=not needed, says="not installed: no `fleet mcp`, no servers for workers", fix=INSTALL)
        return
    yield Finding("mcp", ok=True, says="`fleet mcp` can serve other agents")
    settings: dict[str, ServerSettings] = {}
    for name, server in wiring.config.mcp.items():
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
        why = "; ".join(map(safe, listing.problems[:SHOWN])) or "it has none"
        return Finding(
            "mcp", ok=False, says=f"{name}: offers no tool: {why}", fix=f"try its command: mcp.{name}.command"
        )
    used = f"for {', '.join(users)}" if users else "for no worker: workers.NAME.mcp gives its tools to one"
    says = f"{name}: {counted(len(listing.tools), 'tool')}, {_cost(listing)}, {used}"
    left_out = "; ".join(map(safe, listing.problems[:SHOWN]))
    more = f" and {len(listing.problems) - SHOWN} more" if len(listing.problems) > SHOWN else ""
    return Finding("mcp", ok=True, says=says, fix=f"left out: {left_out}{more}" if left_out else "")


def _cost(listing: Listing) -> str:
    """What its tools add to every prompt."""
    given = tools_of_servers(listing.tools, NO_SERVERS, 0)
    tokens = len(json.dumps([tool.declaration for tool in given])) // CHARACTERS_PER_TOKEN
    how = "searched for" if len(listing.tools) > MOST_DECLARED else "declared"
    return f"{how}, some {tokens} tokens in each prompt"
