"""What the doctor finds about the nodes of a configuration: each is greeted, and says what is wrong with it."""

import time
from collections.abc import AsyncIterator

from fleet import __version__
from fleet.app.nodes.clusters import with_machines
from fleet.app.nodes.manager_side import probe, transport_environment
from fleet.app.wiring import Wiring
from fleet.core.views.program_view import Finding
from fleet.nodes.connection import NodeRefusedError
from fleet.nodes.messages import PROTOCOL, Greeting
from fleet.nodes.streams import LinkLostError

RUN_IT = "run the command of nodes.{name} yourself: it has to end in `fleet node --stdio`"


async def node_findings(wiring: Wiring) -> AsyncIterator[Finding]:
    """A finding for each node, and for each machine of a cluster."""
    async with with_machines(wiring, transport_environment(wiring)) as machines:
        for name in machines.config.nodes:
            yield await node_finding(machines, name)


async def node_finding(wiring: Wiring, name: str) -> Finding:
    """What a node says when it is greeted."""
    what = f"node {name}"
    try:
        return greeting_finding(what, await probe(wiring, name))
    except (LinkLostError, NodeRefusedError, TimeoutError, OSError) as error:
        why = str(error) or "it did not answer in time"
        return Finding(what, ok=False, says=why, fix=RUN_IT.format(name=name))


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
