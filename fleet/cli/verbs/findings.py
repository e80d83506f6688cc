"""What the doctor finds about what is optional: notifications, ACP, forges, the service of the models, MCP."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping

from anyio import create_task_group

from agents.models.answer import CHARACTERS_PER_TOKEN
from agents.models.client import open_client
from agents.models.exchange import Timeouts
from agents.probe import Outcome, Probes, Subject
from agents.tools.mcp_catalog import Listing, ServerSettings
from agents.tools.servers import MOST_DECLARED, McpServers, open_servers, tools_of_servers
from agents.workers.command import ACP_EXTRA, has_acp
from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.app.mcp_servers import INSTALL, has_packages, server_settings
from fleet.app.notifications import channel_problems
from fleet.app.wiring import Wiring
from fleet.config.schema import Config
from fleet.core.plans.limits import parse_rung
from fleet.core.views.program_view import Finding
from fleet.errors import FleetError
from fleet.forge.place import HOSTS, PROGRAMS, Kind, Place
from fleet.forge.program import ForgeError, Program, ProgramMissingError
from fleet.runs.outbox import Outbox, has_outbox, sending
from fleet.runs.run_folder import RunFolder

NO_TABLE = "no channel: nobody is notified when a run needs a person"
NEWEST = 20  # runs that are looked at


def notify_findings(config: Config, environ: Mapping[str, str], runs: list[RunFolder]) -> Iterator[Finding]:
    problems = dict(channel_problems(config, environ))
    if not config.notify.channels:
        yield Finding("notify", ok=True, says=NO_TABLE)
    for name, channel in config.notify.channels.items():
        if (why := problems.get(name)) is not None:
            says = f"notify.channels.{name}{safe(why)}"
            yield Finding("notify", ok=False, says=says, fix="set it right, then try it: fleet notify test")
        else:
            events = ", ".join(channel.events or config.notify.events)
            yield Finding("notify", ok=True, says=f"{name}: {channel.kind}, for {events}")
    for folder in runs[-NEWEST:]:
        if (finding := _undelivered(folder)) is not None:
            yield finding


def _undelivered(folder: RunFolder) -> Finding | None:
    """Notifications of a run that were given up, or that no process will send."""
    if not has_outbox(folder.path):
        return None
    with sending(folder.path) as nobody_sends:
        pass
    try:
        with Outbox(folder.path) as outbox:
            messages = outbox.messages()
    except FleetError as error:
        return Finding("notify", ok=False, says=safe(error), fix="")
    lost = [each for each in messages if each.state == "given up" or (each.is_pending and nobody_sends)]
    if not lost:
        return None
    says = f"{folder.run}: {counted(len(lost), 'notification')} not delivered: {safe(lost[-1].why or 'not sent yet')}"
    return Finding("notify", ok=False, says=says, fix="fleet notify list; fleet notify watch --once")


# ---- acp findings ----------------------------------------------------------------------------------------------------
# What the doctor finds about the Agent Client Protocol: whether its package is there.


def acp_findings() -> Iterator[Finding]:
    if has_acp():
        yield Finding("acp", ok=True, says="workers of the kind acp can work here, and `fleet acp` can serve editors")
    else:
        says = "not installed: no workers of the kind acp, and no `fleet acp` for editors"
        yield Finding("acp", ok=True, says=says, fix=ACP_EXTRA)


# ---- forge findings --------------------------------------------------------------------------------------------------
# What the doctor finds about forges: whether `gh` and `glab` are there and logged in. No run needs them.


LOOK_S = 10.0
ANY = "any/any"  # no repository is asked for


async def forge_findings(environ: Mapping[str, str]) -> list[Finding]:
    """One for each forge; none of them is a failure."""
    found: dict[Kind, Finding] = {}

    async def look(kind: Kind) -> None:
        found[kind] = await _finding(Place(kind, HOSTS[kind], ANY), environ)

    async with create_task_group() as tasks:
        for kind in PROGRAMS:
            tasks.start_soon(look, kind)
    return list(_in_order(found))


def _in_order(found: Mapping[Kind, Finding]) -> Iterator[Finding]:
    yield from (found[kind] for kind in PROGRAMS)


async def _finding(place: Place, environ: Mapping[str, str]) -> Finding:
    name = place.program
    try:
        status = await Program(place, environ).finish(("auth", "status"), timeout_s=LOOK_S)
    except ProgramMissingError as missing:
        return Finding(name, ok=True, says="not installed: `fleet pr` and issues as epics need it", fix=missing.hint)
    except ForgeError as error:
        return Finding(name, ok=True, says=error.message, fix=error.hint)
    if status.timed_out:
        return Finding(
            name, ok=True, says=f"installed; it did not answer within {LOOK_S:g} s", fix=f"{name} auth status"
        )
    if status.exit_code != 0:
        return Finding(name, ok=True, says="not logged in", fix=f"{name} auth login")
    return Finding(name, ok=True, says="logged in: issues and pull requests can be reached")


# ---- live findings ---------------------------------------------------------------------------------------------------
# What `fleet doctor --live` finds at the models' service, for less than a cent and in bounded time.


CALL = Timeouts(silence_s=30.0, call_s=60.0)
_LONGEST = 500  # characters of a service's message


async def live_findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Call the service, and say of each call what was tried, what came back and what to do."""
    try:
        fleet.wiring.require_models()
    except FleetError as error:
        yield Finding("live", ok=False, says="no call was made", fix=str(error))
        return
    wiring = fleet.wiring
    async with open_client(wiring.access, CALL) as client:
        probes = Probes(client, wiring.access, subjects(fleet), wiring.prices)
        async for outcome in probes.run():
            yield _live_findings_finding(outcome)
    if settings := probes.missing.settings():
        yield Finding("settings", ok=False, says="this service lacks something", fix=f"in [models]: {settings}")
    spending = probes.spending
    says = f"at most ${spending.spent:.4f} of ${spending.most:.2f}, by the table of prices, for {spending.calls} calls"
    yield Finding("spent", ok=True, says=says, dollars=spending.spent)


def subjects(fleet: Fleet) -> list[Subject]:
    """Each model and effort that the configuration names, with who uses it."""
    planner, usual = fleet.config.planner, fleet.config.models.worker
    users: dict[tuple[str, str | None], list[str]] = {(planner.model, planner.effort): ["the planner"]}
    for name, worker in fleet.wiring.workers.items():
        if not worker.calls_models:
            continue
        for rung in worker.rungs or worker.models or (usual,):
            users.setdefault(parse_rung(rung) if worker.rungs else (rung, None), []).append(name)
    return [Subject(model, effort, ", ".join(names)) for (model, effort), names in users.items()]  # type: ignore[arg-type] # parsed


def _live_findings_finding(outcome: Outcome) -> Finding:
    came = outcome.came
    prefix = "NOT TRIED: " if came.verdict == "not tried" else ""
    says = safe(f"{outcome.about}: {outcome.tried}: {prefix}{came.text}", limit=_LONGEST)
    fix = safe(came.fix, limit=_LONGEST)
    return Finding("live", ok=came.verdict != "fails", says=says, fix=fix, dollars=outcome.dollars)


# ---- mcp findings ----------------------------------------------------------------------------------------------------
# What the doctor finds about MCP: whether its packages are there, and whether the servers of workers answer.


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
        yield _mcp_findings_finding(name, listing, users)


def _mcp_findings_finding(name: str, listing: Listing, users: list[str]) -> Finding:
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
    given = tools_of_servers(listing.tools, McpServers({}), 0)
    tokens = len(json.dumps([tool.declaration for tool in given])) // CHARACTERS_PER_TOKEN
    how = "searched for" if len(listing.tools) > MOST_DECLARED else "declared"
    return f"{how}, some {tokens} tokens in each prompt"
