"""What the doctor finds about the nodes of a configuration: each is greeted, and says what is wrong with it."""

import time
from collections.abc import AsyncIterator

from fleet import __version__
from fleet.app.nodes.clusters import GREET_S, host_name, probed
from fleet.app.nodes.manager_side import probe, transport_environment
from fleet.app.wiring import Wiring
from fleet.config.schema import NodeSettings
from fleet.core.views.machine.finding import Finding
from fleet.nodes.connection import NodeRefusedError, read_greeting
from fleet.nodes.messages import PROTOCOL, Greeting
from fleet.nodes.streams import LinkLostError

NO_ROOM = "install the same fleet there; all of its processors have to be free, see `ray status`"
RUN_IT = "run the command of nodes.{name} yourself: it has to end in `fleet node --stdio`"


async def node_findings(wiring: Wiring) -> AsyncIterator[Finding]:
    """A finding for each node."""
    for name, settings in wiring.config.nodes.items():
        if settings.ray is None:
            yield await node_finding(wiring, name)
            continue
        async for finding in cluster_findings(wiring, name, settings):
            yield finding


async def cluster_findings(wiring: Wiring, name: str, settings: NodeSettings) -> AsyncIterator[Finding]:
    """A finding for each machine of a Ray cluster."""
    async with probed(name, settings, transport_environment(wiring)) as (cluster, hosts):
        if not hosts:
            why = cluster.out or "none of its machines has processors to give"
            yield Finding(f"cluster {name}", ok=False, says=why, fix=f"check nodes.{name}.ray, and run `ray status`")
        for host in hosts:
            what = f"node {host_name(name, host)}"
            try:
                async with cluster.reach(host) as link:
                    yield greeting_finding(what, await read_greeting(link, within_s=GREET_S))
            except (LinkLostError, NodeRefusedError, TimeoutError, OSError) as error:
                yield _unreached(what, error, NO_ROOM)


def _unreached(what: str, error: Exception, fix: str) -> Finding:
    return Finding(what, ok=False, says=str(error) or "it did not answer in time", fix=fix)


async def node_finding(wiring: Wiring, name: str) -> Finding:
    """What a node says when it is greeted."""
    what = f"node {name}"
    try:
        return greeting_finding(what, await probe(wiring, name))
    except (LinkLostError, NodeRefusedError, TimeoutError, OSError) as error:
        return _unreached(what, error, RUN_IT.format(name=name))


def problem_of(greeting: Greeting) -> tuple[str, str] | None:
    """What keeps a machine with this greeting from working for this program, and what to do."""
    if (greeting.protocol, greeting.version) != (PROTOCOL, __version__):
        return f"it runs fleet {greeting.version}", f"install fleet {__version__} there"
    if greeting.problems:
        return "; ".join(greeting.problems), "run `fleet doctor` on that machine"
    return None


def greeting_finding(what: str, greeting: Greeting) -> Finding:
    """What a greeting means for a run of this program."""
    if (problem := problem_of(greeting)) is not None:
        return Finding(what, ok=False, says=problem[0], fix=problem[1])
    skew = greeting.time - time.time()
    gigabytes = greeting.memory_bytes / 1e9
    says = f"{greeting.host}: {greeting.processors} processors, {gigabytes:.0f} GB, clock {skew:+.0f} s"
    return Finding(what, ok=True, says=says)
