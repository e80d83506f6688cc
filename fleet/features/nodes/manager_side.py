"""The nodes of a run, connected: what stands behind the engine's one `Node` where other machines are configured."""

import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import create_task_group, move_on_after, sleep, to_thread
from anyio.abc import TaskGroup

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
from fleet.errors import FleetError, UsageError
from fleet.features.nodes.cluster.cluster import RELAY, RayCluster
from fleet.features.nodes.cluster.news import SOCKET, Host
from fleet.features.nodes.connection import Connection, greet, read_greeting
from fleet.features.nodes.messages import PROTOCOL, Greeting, Open
from fleet.features.nodes.placement import Placement
from fleet.features.nodes.remote_node import Connect, RemoteNode, StoreObjects
from fleet.features.nodes.settings import NodeSettings
from fleet.features.nodes.terms import patience_s, run_folder_of_nodes, terms_of
from fleet.features.nodes.transport import CommandStream, Link, LinkLostError, open_command
from fleet.ports.journal import Recorder
from fleet.ports.orders import Node, OpenCalls, OtherMachines
from fleet.ports.worktrees import EffectError
from fleet.runs.run_folder import RunFolder
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.store.store import Store

GREET_S = 60.0  # how long a node may take to greet and to make itself ready
LEASE_S = 20.0
HEED_S = 0.2  # how long a request about a node may wait once it is in the journal
START_S = 30.0  # how long a run waits for its nodes before it begins without them
NAMED_FILES = 5  # in a warning


@dataclass(frozen=True, slots=True)
class Here:
    """What this machine has for its nodes."""

    transcripts: Path
    logs: Path
    """Of checks and set-ups."""
    local_workers: int
    calls: OpenCalls


@dataclass(slots=True)
class Nodes:
    """The nodes of one run. `beside` puts them beside this machine."""

    run: RunId
    wiring: Wiring
    objects: StoreObjects
    opening: Callable[[], Awaitable[Open]]
    reread: Callable[[], Mapping[str, NodeSettings]]
    """The nodes of the configuration as it is now. Raises `FleetError`."""
    here: Here
    tasks: TaskGroup
    folder: Path
    """For sockets; nobody else can open it."""
    remote: list[RemoteNode] = field(default_factory=list)
    clusters: list[RayCluster] = field(default_factory=list)
    _engine: Recorder | None = None
    _placement: Placement | None = None
    _early: list[Fact] = field(default_factory=list)
    """What happened before there was an engine to record it."""

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
        self.tasks.start_soon(self._heed, engine)
        return self._placement

    def distrust(self, name: str, why: str) -> None:
        """Give a node nothing any more: what it reported was not true."""
        for node in self._named(name):
            node.ban(f"it is not used any more: {why}")

    def rest(self, name: str, why: str) -> None:
        """Give a node nothing for a while: something about it is broken."""
        for node in self._named(name):
            node.rest(why)

    def _named(self, name: str) -> list[RemoteNode]:
        return [node for node in self.remote if node.name == name]

    def notice(self, fact: Fact) -> None:
        """Pass news on to the journal; before there is one, keep it."""
        if self._engine is not None:
            self._engine.note(fact)
        else:
            self._early.append(fact)

    def wake(self) -> None:
        if self._placement is not None:
            self._placement.wake()

    async def join(self, name: str, settings: NodeSettings) -> None:
        """Begin to connect to a node, or to those of a cluster, and keep a connection to each."""
        opening = (await self.opening()).model_copy(update={"lease_s": settings.lease_s or LEASE_S})
        if settings.ray is None:
            self._keep(name, settings, partial(connect, self.wiring, name, settings, opening, terms_of(self.wiring)))
            return

        def found(host: Host) -> None:
            reach = partial(connect_through, cluster, host, opening, terms_of(self.wiring))
            self._keep(host_name(name, host), at_most(settings, host), reach, part_of=name)

        def lost(why: str) -> None:
            self.notice(NodeLost(at=time.time(), node=name, why=why))

        cluster = cluster_of(name, settings, self.folder, transport_environment(self.wiring))
        cluster.found, cluster.lost = found, lost
        self.clusters.append(cluster)
        self.tasks.start_soon(cluster.run)

    async def wait_tried(self) -> None:
        """Return once each node has answered, or could not be reached."""
        for cluster in self.clusters:
            await cluster.wait_tried()
        for node in tuple(self.remote):
            await node.wait_tried()

    def _joined(self) -> Iterator[RemoteNode | RayCluster]:
        yield from self.remote
        yield from self.clusters

    def _keep(self, name: str, settings: NodeSettings, connect: Connect, part_of: str = "") -> None:
        node = RemoteNode(
            name=name,
            workers=settings.workers,
            checks=settings.checks,
            lands=bool(settings.lands),
            labels=frozenset(settings.labels or ()),
            part_of=part_of,
            connect=connect,
            objects=self.objects,
            notice=self.notice,
            calls=self.here.calls,
            patience_s=partial(patience_s, self.wiring.config),
            freed=self.wake,
        )
        self.remote.append(node)
        self.tasks.start_soon(node.run)

    async def _heed(self, engine: Recorder) -> None:
        """Do what people ask about nodes, as the journal says."""
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
        """Let a node join that is in the configuration by now; one that has joined is tried again and again anyway."""
        if (known := next((each for each in self._joined() if each.name == name), None)) is not None:
            self.notice(NodeLost(at=time.time(), node=name, why=known.out or "it has joined already"))
            return
        try:
            settings = (await to_thread.run_sync(self.reread)).get(name)
            if settings is not None:
                await self.join(name, settings)
                return
            why = f"there is no [nodes.{name}] in the configuration"
        except FleetError as error:
            why = f"the configuration can't be read: {error}"
        except (EffectError, OSError) as error:
            why = f"it can't be added now: {error}"
        self.notice(NodeLost(at=time.time(), node=name, why=why))


@asynccontextmanager
async def join_nodes(
    fleet: Fleet, folder: RunFolder, state: RunState, worktrees: RunWorktrees, calls: OpenCalls
) -> AsyncIterator[OtherMachines]:
    """The nodes of a run, as the table of features has it."""
    here = Here(folder.transcripts, folder.checks, fleet.workers_that_fit()[0], calls)
    async with open_nodes(fleet.wiring, state, worktrees, here) as nodes:
        yield OtherMachines(nodes.beside, nodes.distrust, nodes.rest)


@asynccontextmanager
async def open_nodes(
    wiring: Wiring,
    state: RunState,
    worktrees: RunWorktrees,
    here: Here,
) -> AsyncIterator[Nodes]:
    """The configured nodes, connected as far as they answer in time. Others may come later, or be added."""
    objects = StoreObjects(worktrees.store, wiring.worktrees, here.transcripts, here.logs)
    opening, reread = partial(_opening, state, worktrees.store), partial(_nodes_now, wiring, state)
    with run_folder_of_nodes(here.transcripts.parent) as folder:
        async with create_task_group() as tasks:
            nodes = Nodes(state.run, wiring, objects, opening, reread, here, tasks, folder)
            for name, settings in wiring.config.named(NodeSettings).items():
                await nodes.join(name, settings)
            if wiring.config.named(NodeSettings) and (files := worktrees.leases.included_files):
                nodes.notice(WarningNoted(at=time.time(), text=_not_sent(files)))
            for name in state.policy.machines.offers.keys() - wiring.config.named(NodeSettings).keys() - {HERE}:
                why = f"there is no [nodes.{name}] in the configuration any more"
                nodes.notice(NodeLost(at=time.time(), node=name, why=why))
            with move_on_after(START_S):
                await nodes.wait_tried()
            yield nodes
            for each in nodes.remote:
                await each.say_goodbye()
            tasks.cancel_scope.cancel()


def _not_sent(files: Sequence[str]) -> str:
    """A warning about the files that a worktree has here and not on a node."""
    named = ", ".join(files[:NAMED_FILES]) + (" ..." if len(files) > NAMED_FILES else "")
    return (
        f"files of .worktreeinclude and worktrees.include are not sent to nodes: {named}; work that needs them has to "
        "stay on this machine (box.labels), or a set-up command has to make them there"
    )


def _nodes_now(wiring: Wiring, state: RunState) -> Mapping[str, NodeSettings]:
    """The nodes of the configuration, read again from the files that a resumed run would read."""
    before = state.choices.model_copy(update={"withheld": {}})  # no secret belongs to a node
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
async def connect(
    wiring: Wiring, name: str, settings: NodeSettings, opening: Open, terms: bytes
) -> AsyncIterator[Connection]:
    """A connection to a node. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
    argv = command_line(name, settings)
    async with open_command(argv, transport_environment(wiring)) as stream:
        try:
            connection = await greet(Link(stream), opening, terms, within_s=GREET_S)
        except LinkLostError as error:
            raise LinkLostError(await explained(stream, str(error))) from error
        connection.listen = stream.listen
        yield connection


async def probe(wiring: Wiring, name: str) -> Greeting:
    """What a node says of itself, without a run. Raises as `connect` does."""
    argv = command_line(name, wiring.config.named(NodeSettings)[name])
    async with open_command(argv, transport_environment(wiring)) as stream:
        try:
            return await read_greeting(Link(stream), within_s=GREET_S)
        except LinkLostError as error:
            raise LinkLostError(await explained(stream, str(error))) from error


def transport_environment(wiring: Wiring) -> dict[str, str]:
    """What a transport is given: all that the person has (an agent of SSH, a home), but no key and no setting of ours.

    A node has a configuration of its own. A transport may need the credentials of a cloud; those stay.
    """
    models = wiring.config.models
    keys = {models.api_key_env, *(value[1:] for value in models.headers.values() if value.startswith("$"))}
    return {name: value for name, value in wiring.environ.items() if name not in keys and not name.startswith("FLEET_")}


def command_line(name: str, node: NodeSettings) -> list[str]:
    """The words of a transport. Raises `UsageError`, or `LinkLostError` for a cluster, which has none."""
    if node.ray is not None:
        raise LinkLostError("a Ray cluster: name one of its machines, as `fleet nodes` lists them")
    try:
        words = shlex.split(node.command or "")
    except ValueError as error:
        raise UsageError(f"nodes.{name}.command: {node.command!r} can't be split into words: {error}") from error
    if not words:
        raise UsageError(f"nodes.{name}.command: is empty", hint='write it like "ssh builder fleet node --stdio"')
    return words


async def explained(stream: CommandStream, why: str) -> str:
    """Why a stream ended, with the last words of its command."""
    words = await stream.last_words()
    return f"{why} ({words})" if words else why


# ---- clusters --------------------------------------------------------------------------------------------------------
# The machines of a Ray cluster as nodes of a run, each under a name of its own.


def cluster_of(name: str, settings: NodeSettings, folder: Path, env: Mapping[str, str]) -> RayCluster:
    """The cluster of a table in the configuration. Raises `UsageError`."""
    try:
        command = shlex.split(settings.command or "")
    except ValueError as error:
        raise UsageError(f"nodes.{name}.command: {settings.command!r} can't be split into words: {error}") from error
    own = folder / name
    own.mkdir(mode=0o700)
    return RayCluster(name, settings.ray or "auto", settings.slots or 0, command, own, env)


def host_name(name: str, host: Host) -> str:
    """The name of a machine among the nodes of a run."""
    return f"{name}-{host.id[:8]}"


def at_most(settings: NodeSettings, host: Host) -> NodeSettings:
    """What is not configured is what Ray says that the machine has, which may be less than its kernel says."""
    workers = host.processors if settings.workers is None else settings.workers
    checks = host.processors if settings.checks is None else settings.checks
    return settings.model_copy(update={"workers": min(workers, 1000), "checks": min(checks, 1000)})


@asynccontextmanager
async def probed(
    name: str, settings: NodeSettings, env: Mapping[str, str]
) -> AsyncIterator[tuple[RayCluster, Sequence[Host]]]:
    """A cluster without a run, and its machines. The autoscaler is not asked."""
    hosts: list[Host] = []
    with TemporaryDirectory(prefix="fleet-nodes-") as folder:
        cluster = cluster_of(name, settings.model_copy(update={"slots": None}), Path(folder), env)
        cluster.found = hosts.append
        async with create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await cluster.wait_tried()
            yield cluster, hosts
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def with_machines(wiring: Wiring, env: Mapping[str, str], name: str = "") -> AsyncIterator[Wiring]:
    """A configuration in which each machine of a cluster is a node, by a command line that gives its stream.

    With a name, only a cluster that this may be a machine of is looked at.
    """
    nodes: dict[str, NodeSettings] = {}
    async with AsyncExitStack() as stack:
        for each, settings in wiring.config.named(NodeSettings).items():
            if settings.ray is None or not name.startswith(f"{each}-" if name else ""):
                nodes[each] = settings
                continue
            cluster, hosts = await stack.enter_async_context(probed(each, settings, env))
            if not hosts:
                why = cluster.out or "none of its machines has processors to give"
                nodes[each] = _by_relay(settings, "--because", why)
            for host in hosts:
                nodes[host_name(each, host)] = _by_relay(at_most(settings, host), str(cluster.folder / SOCKET), host.id)
        yield replace(wiring, config=wiring.config.model_copy(update={"nodes": nodes}))


def _by_relay(settings: NodeSettings, *arguments: str) -> NodeSettings:
    command = shlex.join([sys.executable, "-I", "-S", str(RELAY), *arguments])
    return settings.model_copy(update={"command": command, "ray": None, "slots": None})


@asynccontextmanager
async def connect_through(cluster: RayCluster, host: Host, opening: Open, terms: bytes) -> AsyncIterator[Connection]:
    """A connection to the node on a machine. Raises what `Connect` says."""
    async with cluster.reach(host) as link:
        yield await greet(link, opening, terms, within_s=GREET_S)
