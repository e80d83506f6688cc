"""The machines of a Ray cluster as nodes of a run, each under a name of its own."""

import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import create_task_group

from fleet.app.wiring import Wiring
from fleet.config.schema import NodeSettings
from fleet.errors import UsageError
from fleet.nodes.cluster import relay
from fleet.nodes.cluster.cluster import RayCluster
from fleet.nodes.cluster.news import SOCKET, Host
from fleet.nodes.connection import Connection, greet
from fleet.nodes.messages import Open

GREET_S = 60.0  # how long a machine may take to make its actor and to greet


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
        for each, settings in wiring.config.nodes.items():
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
    command = shlex.join([sys.executable, "-I", "-S", str(Path(relay.__file__)), *arguments])
    return settings.model_copy(update={"command": command, "ray": None, "slots": None})


@asynccontextmanager
async def connect_through(cluster: RayCluster, host: Host, opening: Open, terms: bytes) -> AsyncIterator[Connection]:
    """A connection to the node on a machine. Raises what `Connect` says."""
    async with cluster.reach(host) as link:
        yield await greet(link, opening, terms, within_s=GREET_S)
