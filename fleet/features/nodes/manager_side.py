"""The connected nodes of a run, behind the engine's single `Node`."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from anyio import Event, create_task_group, move_on_after, sleep, to_thread
from anyio.abc import TaskGroup, TaskStatus

from fleet import __version__
from fleet.app.fleet import Fleet
from fleet.app.wiring import Wiring
from fleet.config.load import load_config
from fleet.config.schema import stays_here
from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Fact, NodeLost, WarningNoted
from fleet.core.plans.limits import HERE
from fleet.core.state.machines import labels_here
from fleet.core.state.state import NodeState, RunState
from fleet.errors import FleetError
from fleet.features.nodes.connection import NodeConnection, greet, read_greeting
from fleet.features.nodes.kinds import NOT_JOINED, JoinedMachine, Table, explained, open_table, transport_environment
from fleet.features.nodes.messages import PROTOCOL, Greeting, Open
from fleet.features.nodes.node_config import build_node_config, patience_s, run_folder_of_nodes
from fleet.features.nodes.placement import Placement
from fleet.features.nodes.remote_node import RemoteNode, StoreObjects
from fleet.features.nodes.settings import NodeSettings
from fleet.features.nodes.transport import CommandStream, LinkLostError
from fleet.ports.journal import Recorder
from fleet.ports.orders import Node, OpenCalls, OtherMachines
from fleet.ports.worktrees import EffectError
from fleet.runs.run_folder import RunFolder
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.store.store import Store

GREET_S = 60.0  # timeout for a node to connect and get ready
LEASE_S = 20.0
HEED_S = 0.2  # how often to check the journal for requests about nodes
START_S = 30.0  # how long a run waits for its nodes before it starts without them
NAMED_FILES = 5  # files listed in a warning


@dataclass(frozen=True, slots=True)
class Here:
    """Folders and functions of this machine that its nodes use."""

    transcripts: Path
    logs: Path
    """The logs of checks and setup commands."""
    local_workers: int
    calls: OpenCalls


@dataclass(slots=True)
class _Progress:
    """The progress of finding the machines of a table."""

    out: str = NOT_JOINED
    """Why no machine can be reached, or empty if they can."""
    tried: Event = field(default_factory=Event)


@dataclass(slots=True)
class RunNodes:
    """The nodes of one run. `beside` combines them with this machine."""

    run: RunId
    wiring: Wiring
    objects: StoreObjects
    opening: Callable[[], Awaitable[Open]]
    reread: Callable[[], Mapping[str, NodeSettings]]
    """Reads the nodes of the current configuration. Raises `FleetError`."""
    here: Here
    tasks: TaskGroup
    folder: Path
    """The folder for sockets. Other users can't open it."""
    remote: list[RemoteNode] = field(default_factory=list)
    tables: dict[str, _Progress] = field(default_factory=dict)
    """The tables that joined, by name."""
    _engine: Recorder | None = None
    _placement: Placement | None = None
    _early: list[Fact] = field(default_factory=list)
    """Facts from before the engine was there to record them."""

    def beside(self, local: Node, engine: Recorder) -> Node:
        self._engine = engine
        engine.note(*self._early)
        self._placement = Placement(
            run=self.run,
            local=local,
            local_workers=self.here.local_workers,
            local_checks=self.wiring.worktrees.check_slots,
            nodes=self.remote,
            stays=stays_here(self.wiring.config),
            labels=labels_here(engine.state),
        )
        self.tasks.start_soon(self._apply_requests, engine)
        return self._placement

    def distrust(self, name: str, why: str) -> None:
        """Ban a node because it sent a false report."""
        for node in self._find(name):
            node.ban(f"banned for the rest of the run: {why}")

    def rest(self, name: str, why: str) -> None:
        """Pause a node because it is broken."""
        for node in self._find(name):
            node.rest(why)

    def _find(self, name: str) -> list[RemoteNode]:
        return [node for node in self.remote if node.name == name]

    def notice(self, fact: Fact) -> None:
        """Record a fact in the journal, or keep it until there is an engine."""
        if self._engine is not None:
            self._engine.note(fact)
        else:
            self._early.append(fact)

    def wake(self) -> None:
        if self._placement is not None:
            self._placement.wake()

    async def join(self, name: str, settings: NodeSettings) -> None:
        """Start to find the machines of a table and to connect to each. Raises `UsageError`."""
        opening = (await self.opening()).model_copy(update={"lease_s": settings.lease_s or LEASE_S})
        table = Table(name, settings, transport_environment(self.wiring), self.folder)
        self.tables[name] = progress = _Progress()
        await self.tasks.start(self._take_in, table, progress, opening)

    async def _take_in(
        self, table: Table, progress: _Progress, opening: Open, *, task_status: TaskStatus[None]
    ) -> None:
        async with open_table(table) as found:
            task_status.started()
            async for news in found:
                if isinstance(news, str):
                    progress.out = news
                    self.notice(NodeLost(at=time.time(), node=table.name, why=news))
                else:
                    progress.out = ""
                    for machine in news:
                        self._keep(machine, opening)
                progress.tried.set()

    async def wait_tried(self) -> None:
        """Return once each node has responded or failed to connect."""
        for table in tuple(self.tables.values()):
            await table.tried.wait()
        for node in tuple(self.remote):
            await node.wait_tried()

    def _keep(self, machine: JoinedMachine, opening: Open) -> None:
        settings = machine.settings
        node = RemoteNode(
            name=machine.name,
            workers=settings.workers,
            checks=settings.checks,
            lands=bool(settings.lands),
            labels=frozenset(settings.labels or ()),
            part_of=machine.part_of,
            connect=partial(connect, machine, opening, build_node_config(self.wiring)),
            objects=self.objects,
            notice=self.notice,
            calls=self.here.calls,
            patience_s=partial(patience_s, self.wiring.config),
            freed=self.wake,
        )
        self.remote.append(node)
        self.tasks.start_soon(node.run)

    async def _apply_requests(self, engine: Recorder) -> None:
        """Carry out the node requests in the journal."""
        seen: Mapping[str, NodeState] = {}
        while True:
            if (asked := engine.state.nodes) is not seen:
                for node in self.remote:
                    named = (asked.get(node.name), asked.get(node.part_of))
                    node.drained = any(each is not None and bool(each.drained_by) for each in named)
                for name in [each.name for each in asked.values() if each.added]:
                    await self._add(name)
                seen = asked
                self.wake()
            await sleep(HEED_S)

    async def _add(self, name: str) -> None:
        """Add a node from the current configuration. A node that joined before reconnects automatically."""
        known = {each: table.out for each, table in self.tables.items()} | {node.name: node.out for node in self.remote}
        if name in known:
            self.notice(NodeLost(at=time.time(), node=name, why=known[name] or "already added"))
            return
        try:
            settings = (await to_thread.run_sync(self.reread)).get(name)
            if settings is not None:
                await self.join(name, settings)
                return
            why = f"the configuration does not have [nodes.{name}]"
        except FleetError as error:
            why = f"the configuration can't be read: {error}"
        except (EffectError, OSError) as error:
            why = f"can't add the node: {error}"
        self.notice(NodeLost(at=time.time(), node=name, why=why))


@asynccontextmanager
async def join_nodes(
    fleet: Fleet, folder: RunFolder, state: RunState, worktrees: RunWorktrees, calls: OpenCalls
) -> AsyncIterator[OtherMachines]:
    """Open the nodes of a run, for the feature table."""
    here = Here(folder.transcripts, folder.checks, fleet.workers_that_fit()[0], calls)
    async with open_nodes(fleet.wiring, state, worktrees, here) as nodes:
        yield OtherMachines(nodes.beside, nodes.distrust, nodes.rest)


@asynccontextmanager
async def open_nodes(
    wiring: Wiring,
    state: RunState,
    worktrees: RunWorktrees,
    here: Here,
) -> AsyncIterator[RunNodes]:
    """Connect the configured nodes. Nodes that don't respond in time may join later."""
    objects = StoreObjects(worktrees.store, wiring.worktrees, here.transcripts, here.logs)
    opening, reread = partial(_opening, state, worktrees.store), partial(_nodes_now, wiring, state)
    with run_folder_of_nodes(here.transcripts.parent) as folder:
        async with create_task_group() as tasks:
            nodes = RunNodes(state.run, wiring, objects, opening, reread, here, tasks, folder)
            for name, settings in wiring.config.named(NodeSettings).items():
                await nodes.join(name, settings)
            if wiring.config.named(NodeSettings) and (files := worktrees.leases.included_files):
                nodes.notice(WarningNoted(at=time.time(), text=_not_sent(files)))
            for name in state.policy.machines.offers.keys() - wiring.config.named(NodeSettings).keys() - {HERE}:
                why = f"[nodes.{name}] was removed from the configuration"
                nodes.notice(NodeLost(at=time.time(), node=name, why=why))
            with move_on_after(START_S):
                await nodes.wait_tried()
            yield nodes
            for each in nodes.remote:
                await each.say_goodbye()
            tasks.cancel_scope.cancel()


def _not_sent(files: Sequence[str]) -> str:
    """Return a warning about included files, which nodes don't get."""
    named = ", ".join(files[:NAMED_FILES]) + (" ..." if len(files) > NAMED_FILES else "")
    return (
        f"files of .worktreeinclude and worktrees.include are not sent to nodes: {named}. Keep work that needs them on "
        "this machine with box.labels, or create them in the setup command"
    )


def _nodes_now(wiring: Wiring, state: RunState) -> Mapping[str, NodeSettings]:
    """Re-read the nodes from the configuration files that a resumed run would read."""
    before = state.choices.model_copy(update={"withheld": {}})  # nodes don't need secrets
    return load_config(environ=wiring.environ, repository=Path(state.repository), before=before).config.named(
        NodeSettings
    )


async def _opening(state: RunState, store: Store) -> Open:
    object_format = await store.git.line("rev-parse", "--show-object-format")
    return Open(
        protocol=PROTOCOL,
        version=__version__,
        run=state.run,
        repository=store.home.name,
        object_format="sha256" if object_format == "sha256" else "sha1",
        base=state.base,
        lease_s=1.0,
    )


@asynccontextmanager
async def connect(machine: JoinedMachine, opening: Open, terms: bytes) -> AsyncIterator[NodeConnection]:
    """Connect to a node. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
    async with machine.reach() as link:
        try:
            connection = await greet(link, opening, terms, within_s=GREET_S)
        except LinkLostError as error:
            raise LinkLostError(await explained(link, str(error))) from error
        if isinstance(link.stream, CommandStream):
            connection.listen = link.stream.listen
        yield connection


async def probe(machine: JoinedMachine) -> Greeting:
    """Read a node's greeting without opening a run. Raises the same errors as `connect`."""
    async with machine.reach() as link:
        try:
            return await read_greeting(link, within_s=GREET_S)
        except LinkLostError as error:
            raise LinkLostError(await explained(link, str(error))) from error
