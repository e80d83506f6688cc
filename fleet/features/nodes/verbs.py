"""`fleet nodes` manages worker nodes, and `fleet node` serves as one."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from dashboards.text.formats import counted
from dashboards.text.safe import safe
from dashboards.text.tables import columns
from fleet.app.wiring import Wiring
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, ConfigFile, Repo, RunName, Yes
from fleet.config.environment import current, user
from fleet.config.load import load_config
from fleet.core.base.ids import suggestion
from fleet.core.facts.facts import NodeAddRequested, NodeDrained, NodeUndrained
from fleet.core.policy.requests import Request
from fleet.errors import FleetError, UsageError
from fleet.features.nodes.kinds import JoinedMachine, kind_of, machines_now
from fleet.features.nodes.node_admin import clean_node, look_at, look_at_nodes, node_finding, probe_finding
from fleet.features.nodes.node_process import greet, run_node
from fleet.features.nodes.node_views import CleanedNodeView, GreetingView, NodeView
from fleet.features.nodes.settings import NodeSettings
from fleet.read.agent_rows import NodeStatus
from fleet.read.base_view import Finding
from fleet.read.run import just_after

Done = TypeVar("Done")
TEXT = 300
ACTIONS = ("list", "check", "drain", "undrain", "add", "clean")
REQUESTS: dict[str, tuple[Callable[[str], Request], str]] = {
    "drain": (
        lambda node: NodeDrained(at=time.time(), node=node, by=user()),
        "draining node {}: running work finishes, and new work goes elsewhere",
    ),
    "undrain": (lambda node: NodeUndrained(at=time.time(), node=node, by=user()), "node {} accepts work again"),
    "add": (lambda node: NodeAddRequested(at=time.time(), node=node, by=user()), "adding node {}"),
}


def nodes(
    action: Annotated[
        str, typer.Argument(metavar="list|check|drain|undrain|add|clean", help="The action (default: list).")
    ] = "list",
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name of the node, from its table [nodes.NAME].")
    ] = None,
    named: RunName = None,
    repo: Repo = HERE,
    config: ConfigFile = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Manage worker nodes: list, check, drain, add or clean.

    `list` connects to each configured node and shows its version, slots, problems, cache and clock.
    `check` also runs a test job in a sandbox on the node.
    `drain` stops sending new work of a run to the node. Running work finishes there. `undrain` reverts it.
    `add` adds a node from the configuration to a running run.
    `clean` deletes caches and old reports that no run uses.

    Exits with code 3 if a node can't be used.

    \b
    Examples:
      fleet nodes
      fleet nodes check builder
      fleet nodes drain builder         during a run; revert with fleet nodes undrain builder
      fleet nodes add builder           after you add [nodes.builder] to the configuration
      fleet nodes clean builder
    """
    if action not in ACTIONS:
        raise UsageError(
            f"unknown action: {action!r}", hint=suggestion(action, ACTIONS) or f"use one of {', '.join(ACTIONS)}"
        )
    if action != "list" and name is None:
        raise UsageError(f"`fleet nodes {action}` requires the name of a node", hint="run `fleet nodes` to list them")
    if action in REQUESTS and name is not None:
        _ask(action, name, named, repo, config, yes=yes, as_json=as_json)
        return
    wiring = Wiring(common.configuration(repo, config).config, current())
    if name is not None:
        _require_known(wiring, name)
    if action == "check" and name is not None:
        _check(wiring, name, as_json=as_json)
    elif action == "clean" and name is not None:
        _clean(wiring, name, as_json=as_json)
    else:
        _list(wiring, name, named, repo, as_json=as_json)


def _list(wiring: Wiring, name: str | None, named: str | None, repo: Path, *, as_json: bool) -> None:
    views = common.run_async(partial(look_at_nodes, wiring)) if name is None else [_on_machine(wiring, name, look_at)]
    in_run = _nodes_of_run(named, repo)
    views = [replace(view, in_run=in_run.get(view.name)) for view in views]
    if as_json:
        common.show_json(views)
    else:
        common.show(
            node_lines(views) or ["No nodes configured. To add one, add a table [nodes.NAME] to your configuration."]
        )
    raise typer.Exit(0 if all(view.ok for view in views) else FleetError.exit_code)


def node_lines(views: Sequence[NodeView]) -> list[str]:
    """Return a row per node, followed by its problem and fix if it can't be used."""
    if not views:
        return []
    rows = [
        ("NODE", "STATUS", "VERSION", "WORKERS", "CHECKS", "CACHE", "CLOCK", "ROUND TRIP", "LABELS"),
        *map(_row, views),
    ]
    head, *lines = columns(rows)
    shown = [head]
    for view, line in zip(views, lines, strict=True):
        shown.append(line)
        if view.problem:
            shown += [f"  {safe(view.problem, limit=TEXT)}", f"    → {safe(view.fix, limit=TEXT)}"]
    return shown


def _row(view: NodeView) -> tuple[str, ...]:
    status = ("ok" if view.ok else "FAIL") if view.in_run in {None, "connected"} else str(view.in_run)
    cache = (
        f"{(view.cache_bytes or 0) / 1e6:,.1f} MB, {counted(view.commits, 'commit')}"
        if view.commits is not None
        else "-"
    )
    return (
        safe(view.name),
        status,
        safe(view.version or "-", limit=40),
        _slots(view.attempts_running, view.workers),
        _slots(view.checks_running, view.checks),
        cache,
        f"{view.skew_s:+.1f} s" if view.skew_s is not None else "-",
        f"{view.round_trip_s * 1000:.1f} ms" if view.round_trip_s is not None else "-",
        ", ".join(map(safe, view.labels)) or "-",
    )


def _slots(used: int | None, slots: int | None) -> str:
    return "-" if slots is None else str(slots) if used is None else f"{used} of {slots}"


def _nodes_of_run(named: str | None, repo: Path) -> Mapping[str, NodeStatus]:
    """Return the status of each node in the given run, or in the latest run of the repository."""
    try:
        state = common.run_to_read(named, named, repo).state()
    except UsageError:
        if named is not None:
            raise
        return {}
    return {} if state.ended else just_after(state).node_statuses


def _on_machine(wiring: Wiring, name: str, do: Callable[[JoinedMachine], Awaitable[Done]]) -> Done:
    """Run `do` on a node, which may be a machine of a cluster."""

    async def on_machine() -> Done:
        async with machines_now(wiring, name) as machines:
            if name not in machines:
                raise _unknown(name, machines)
            return await do(machines[name])

    return common.run_async(on_machine)


def _check(wiring: Wiring, name: str, *, as_json: bool) -> None:
    async def check(machine: JoinedMachine) -> list[Finding]:
        greeted = await node_finding(machine)
        return [greeted, await probe_finding(wiring, machine)] if greeted.ok else [greeted]

    findings = _on_machine(wiring, name, check)
    if as_json:
        common.show_json(findings)
    else:
        common.show_findings(findings)
    raise typer.Exit(0 if all(finding.ok for finding in findings) else FleetError.exit_code)


def _clean(wiring: Wiring, name: str, *, as_json: bool) -> None:
    cleaned = _on_machine(wiring, name, clean_node)
    view = CleanedNodeView(name, cleaned.bytes, cleaned.in_use)
    stays = f", kept {counted(view.in_use, 'cache')} in use" if view.in_use else ""
    common.show_view(
        view, lambda view: [f"node {safe(name)}: freed {view.bytes / 1e6:,.1f} MB{stays}"], as_json=as_json
    )


def _ask(
    action: str, name: str, named: str | None, repo: Path, config: Path | None, *, yes: bool, as_json: bool
) -> None:
    """Send a request to a run."""
    folder = common.run_to_change(None, named, repo, yes=yes)
    if action == "add":  # the engine reads the same configuration
        if config is not None:
            raise UsageError(
                "--config can't be used with add: a run only re-reads the files that it was started with",
                hint="add the table to one of those files and omit --config",
            )
        _require_known(Wiring(common.configuration_of(folder.state(), secrets=False).config, current()), name)
    make, message = REQUESTS[action]
    common.make_request(folder, make(name), message.format(name), as_json=as_json)


def _require_known(wiring: Wiring, name: str) -> None:
    tables = wiring.config.named(NodeSettings)
    clusters = [cluster for cluster, settings in tables.items() if kind_of(settings).is_cluster]
    if name not in tables and not any(name.startswith(f"{cluster}-") for cluster in clusters):
        raise _unknown(name, tables)


def _unknown(name: str, known: Collection[str]) -> UsageError:
    configure = f'add [nodes.{name}] with command = "ssh {name} fleet node --stdio" to your configuration'
    return UsageError(f"unknown node: {name!r}", hint=suggestion(name, known) or configure)


# ---- node ------------------------------------------------------------------------------------------------------------
# `fleet node`: serve as a worker node for another machine.


def node(
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak the node protocol on stdin and stdout.")] = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Serve as a worker node for another machine, over stdin and stdout.

    A manager starts it with the command of [nodes.NAME] in its configuration. It does not open a port. It runs as long
    as the connection is open, and exits when it loses its manager. Without --stdio, it prints its capabilities.

    \b
    Examples:
      fleet node                          show the capabilities of this machine
      ssh builder fleet node --stdio      the command of [nodes.builder]
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
            *(view.problems or ["ready to serve as a worker node"]),
        ]
    )
    raise typer.Exit(3 if view.problems else 0)
