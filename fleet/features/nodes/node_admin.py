"""Manage nodes outside of a run: inspect them, check them, and delete unused data."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TypeVar

from anyio import create_task_group, current_time, fail_after

from fleet import __version__
from fleet.app.fleet import Fleet
from fleet.app.wiring import Wiring
from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from fleet.errors import FleetError, first_error
from fleet.features.nodes.connection import NodeConnection, NodeRefusedError
from fleet.features.nodes.kinds import JoinedMachine, explained, machines_now
from fleet.features.nodes.manager_side import GREET_S, connect, probe
from fleet.features.nodes.messages import (
    PROTOCOL,
    Clean,
    CleanupDone,
    Frame,
    FrameError,
    Greeting,
    Heartbeat,
    Inspect,
    Inspected,
    NodeMessage,
    Open,
    OrderRefused,
    from_node,
)
from fleet.features.nodes.node_config import build_node_config
from fleet.features.nodes.node_orders import ChecksDone, OrderFailed, UnknownOrderError
from fleet.features.nodes.node_views import NodeView
from fleet.features.nodes.transport import Link, LinkLostError
from fleet.ports.orders import ChecksOrder
from fleet.read.base_view import Finding
from worktrees.store.packs import open_node_store, pack_parts
from worktrees.store.store import Store

CARE_S = 600.0  # timeout for a node to scan or clean its disk
UNREACHED = (LinkLostError, NodeRefusedError, TimeoutError, OSError)
Answer = TypeVar("Answer", bound=NodeMessage)


@dataclass(slots=True)
class NodeAdmin:
    """A connected node that is not open for a run. Its methods raise the same errors as `attend`."""

    greeting: Greeting
    link: Link
    frames: AsyncIterator[Frame]

    async def round_trip_s(self) -> float:
        asked = current_time()
        await self._ask(Heartbeat(number=0), Heartbeat)
        return current_time() - asked

    async def inspect(self) -> Inspected:
        return await self._ask(Inspect(), Inspected)

    async def clean(self, repository: str = "") -> CleanupDone:
        return await self._ask(Clean(repository=repository), CleanupDone)

    async def _ask(self, question: NodeMessage, wanted: type[Answer]) -> Answer:
        with fail_after(CARE_S):
            await self.link.send(question)
            return await _next(self.frames, wanted)


@asynccontextmanager
async def attend(machine: JoinedMachine) -> AsyncIterator[NodeAdmin]:
    """Connect to a node outside of a run. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
    async with machine.reach() as link:
        frames = link.frames()
        try:
            with fail_after(GREET_S):
                greeting = await _next(frames, Greeting)
        except LinkLostError as error:
            raise LinkLostError(await explained(link, str(error))) from error
        yield NodeAdmin(greeting, link, frames)


async def look_at_nodes(wiring: Wiring) -> list[NodeView]:
    """Inspect all configured nodes in parallel."""
    found: dict[str, NodeView] = {}

    async def look(machine: JoinedMachine) -> None:
        found[machine.name] = await look_at(machine)

    async with machines_now(wiring) as machines, create_task_group() as tasks:
        for machine in machines.values():
            tasks.start_soon(look, machine)
    return [found[name] for name in sorted(found)]


async def look_at(machine: JoinedMachine) -> NodeView:
    """Inspect one configured node."""
    name, settings = machine.name, machine.settings
    view = NodeView(
        name=name,
        ok=False,
        problem="",
        fix="",
        in_run=None,
        labels=settings.labels or (),
        lands=bool(settings.lands),
        workers=settings.workers,
        checks=settings.checks,
    )
    try:
        async with attend(machine) as node:
            view = _greeted(view, node.greeting)
            problem = problem_of(node.greeting)
            if problem is not None:
                return replace(view, problem=problem[0], fix=problem[1])
            round_trip_s, held = await node.round_trip_s(), await node.inspect()
    except UNREACHED as error:
        return replace(view, problem=str(error) or TIMED_OUT, fix=RUN_IT.format(name=name))
    return replace(
        view,
        ok=True,
        round_trip_s=round(round_trip_s, 4),
        attempts_running=held.attempts,
        checks_running=held.checks,
        reports=held.reports,
        repositories=held.repositories,
        commits=held.commits,
        cache_bytes=held.bytes,
    )


async def clean_node(machine: JoinedMachine, repository: str = "") -> CleanupDone:
    """Delete unused caches and reports on a node. Raises `FleetError`."""
    name = machine.name
    try:
        async with attend(machine) as node:
            if (problem := problem_of(node.greeting)) is not None and not node.greeting.problems:
                raise FleetError(f"node {name}: {problem[0]}", hint=problem[1])
            return await node.clean(repository)
    except UNREACHED as error:
        why = str(error) or TIMED_OUT
        raise FleetError(f"node {name}: {why}", hint=RUN_IT.format(name=name)) from error


def _greeted(view: NodeView, greeting: Greeting) -> NodeView:
    return replace(
        view,
        workers=greeting.processors if view.workers is None else view.workers,
        checks=greeting.processors if view.checks is None else view.checks,
        host=greeting.host,
        version=greeting.version,
        protocol=greeting.protocol,
        processors=greeting.processors,
        memory_bytes=greeting.memory_bytes,
        skew_s=round(greeting.time - time.time(), 3),
    )


async def _next(frames: AsyncIterator[Frame], wanted: type[Answer]) -> Answer:
    try:
        frame = await anext(frames, None)
        if frame is None:
            raise LinkLostError("the connection closed before the node responded")
        message = from_node(frame)
    except FrameError as error:
        raise LinkLostError(f"the node's command did not start `fleet node --stdio`: {error}") from error
    if isinstance(message, OrderRefused):
        raise NodeRefusedError(message.why)
    if not isinstance(message, wanted):
        raise NodeRefusedError(f"expected `{wanted.__name__.lower()}` from the node, got `{message.type}`")
    return message


# ---- findings --------------------------------------------------------------------------------------------------------
# Checks of `fleet doctor`: connect to each configured node and report its problems.


RUN_IT = "run the command of nodes.{name} in a terminal: it must start `fleet node --stdio`"
TIMED_OUT = "the node timed out"


def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Return the findings for the feature table."""
    return node_findings(fleet.wiring)


async def node_findings(wiring: Wiring) -> AsyncIterator[Finding]:
    """Check each node, and each machine of a cluster."""
    async with machines_now(wiring) as machines:
        for machine in machines.values():
            yield await node_finding(machine)


async def node_finding(machine: JoinedMachine) -> Finding:
    """Connect to a node and check its greeting."""
    what = f"node {machine.name}"
    try:
        return greeting_finding(what, await probe(machine))
    except (LinkLostError, NodeRefusedError, TimeoutError, OSError) as error:
        why = str(error) or TIMED_OUT
        return Finding(what, ok=False, says=why, fix=RUN_IT.format(name=machine.name))


def problem_of(greeting: Greeting) -> tuple[str, str] | None:
    """Return the problem in a node's greeting and its fix, or None if the node can be used."""
    if (greeting.protocol, greeting.version) != (PROTOCOL, __version__):
        return f"the node runs fleet {greeting.version}", f"install fleet {__version__} on it"
    if greeting.problems:
        return "; ".join(greeting.problems), "run `fleet doctor` on that machine"
    return None


def greeting_finding(what: str, greeting: Greeting) -> Finding:
    """Return the finding for a greeting."""
    if (problem := problem_of(greeting)) is not None:
        return Finding(what, ok=False, says=problem[0], fix=problem[1])
    skew = greeting.time - time.time()
    gigabytes = greeting.memory_bytes / 1e9
    says = f"{greeting.host}: {greeting.processors} processors, {gigabytes:.0f} GB, clock {skew:+.0f} s"
    return Finding(what, ok=True, says=says)


# ---- probe order -----------------------------------------------------------------------------------------------------
# `fleet nodes check`: run one check in a sandbox on the node, and delete its data afterwards.


REPOSITORY = "fleet-probe"
PROBE_S = 120.0  # timeout for the entire order
COMMIT = "tree {tree}\nauthor fleet <fleet@localhost> 0 +0000\ncommitter fleet <fleet@localhost> 0 +0000\n\nA probe.\n"
CRITERION = Criterion(criterion="the probe is there", run='test "$(cat probe)" = fleet', timeout_s=60)
ON_IT = "run `fleet doctor` on that machine, as the user that the node's command logs in as"


async def probe_finding(wiring: Wiring, machine: JoinedMachine) -> Finding:
    """Run an order on a node, and delete its data there afterwards."""
    what, began = f"order on {machine.name}", current_time()
    report: object = None
    error: BaseException | None = None
    try:
        with fail_after(PROBE_S):
            report = await _order(wiring, machine)
    except* (*UNREACHED, FleetError, UnknownOrderError) as group:
        error = first_error(group)
    if error is not None:
        return Finding(what, ok=False, says=str(error) or f"timed out after {PROBE_S:g} s", fix=ON_IT)
    finding = _judge(what, report, current_time() - began)
    if finding.ok and wiring.config.worktrees.include:
        return replace(finding, says=f"{finding.says} (files of worktrees.include are not sent to nodes)")
    return finding


def _judge(what: str, report: object, seconds: float) -> Finding:
    match report:
        case ChecksDone(runs=(run,)) if run.passed:
            return Finding(what, ok=True, says=f"ran a check in a sandbox in {seconds:.1f} s, including the transfer")
        case ChecksDone(runs=(run,)):
            says = f"the check failed with exit code {run.exit_code}: {run.output.strip()[-200:]}"
            return Finding(what, ok=False, says=says, fix=ON_IT)
        case OrderFailed(failure=failure):
            return Finding(what, ok=False, says=f"{failure.kind}: {failure.summary}", fix=ON_IT)
        case _:
            return Finding(
                what, ok=False, says="the node reported results for another order", fix="use another machine"
            )


async def _order(wiring: Wiring, machine: JoinedMachine) -> object:
    """Run one check on a new commit, and return the report."""
    with TemporaryDirectory(prefix="fleet-probe-") as folder:
        async with _probe_store(Path(folder)) as (store, commit):
            run = f"probe-{token_hex(4)}"
            opening = Open(
                protocol=PROTOCOL,
                version=__version__,
                run=run,
                repository=REPOSITORY,
                object_format="sha1",
                base=commit,
                lease_s=PROBE_S,
            )
            terms = build_node_config(_without_gate_and_setup(wiring))
            async with connect(machine, opening, terms) as connection, create_task_group() as tasks:
                tasks.start_soon(connection.run)
                report = await _done(connection, f"{run}/checks/probe/1", store, commit)
                tasks.cancel_scope.cancel()
    await clean_node(machine, REPOSITORY)
    return report


async def _done(connection: NodeConnection, key: str, store: Store, commit: Sha) -> object:
    if commit not in connection.commits:
        await connection.store(commit, pack_parts(store, commit, ()))
    await connection.start(key, ChecksOrder(commit, (CRITERION,)))
    async with aclosing(connection.follow(key)) as events:
        report = [event async for event in events][-1]
    await connection.acknowledge(key)
    return report


def _without_gate_and_setup(wiring: Wiring) -> Wiring:
    """Remove the project's gate and setup command, which don't apply to the probe's repository."""
    checks = wiring.config.checks.model_copy(update={"gate": "", "named": {}})
    worktrees = wiring.config.worktrees.model_copy(update={"setup": "", "include": ()})
    config = wiring.config.model_copy(update={"checks": checks, "worktrees": worktrees})
    return Wiring(config, wiring.environ)


@asynccontextmanager
async def _probe_store(folder: Path) -> AsyncIterator[tuple[Store, Sha]]:
    """Create a store with one commit, which is always the same."""
    store = await open_node_store(folder, REPOSITORY, "sha1")
    try:
        git = store.git
        blob = (await git("hash-object", "-w", "--stdin", data=b"fleet\n")).decode().strip()
        tree = (await git("mktree", data=f"100644 blob {blob}\tprobe\n".encode())).decode().strip()
        data = COMMIT.format(tree=tree).encode()
        yield store, Sha(await git.line("hash-object", "-t", "commit", "-w", "--stdin", data=data))
    finally:
        await store.close()
