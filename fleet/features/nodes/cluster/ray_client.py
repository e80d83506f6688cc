"""All calls to Ray. Blocking calls run in threads, and Ray's own retries are disabled.

Constructor arguments and environments don't contain data of the manager, because Ray stores both in clear text.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import ray
from anyio import CancelScope, get_cancelled_exc_class, sleep, to_thread
from ray.autoscaler.sdk import request_resources
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fleet.features.nodes.cluster.actor import HostActor
from fleet.features.nodes.cluster.cluster_events import ClusterHost

NAMESPACE = "fleet"
IDLE_S = 10.0  # how long an idle actor stays alive
UNKNOWN_WAIT_S = 0.2  # before repeating a call if Ray can't tell whether it arrived
Found = TypeVar("Found")


class ClusterError(Exception):
    """A call to Ray failed. The message is one line."""


class RayActor(HostActor):
    """Satisfies `HostCalls` in a Ray process."""

    def __init__(self, idle_s: float) -> None:
        super().__init__(idle_s)
        self._leaving = ray.get_runtime_context().current_actor.leave.remote()

    async def leave(self) -> None:
        await self.leave_when_idle()
        ray.actor.exit_actor()


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor of a machine. Its calls wait, and raise `ClusterError` if it is dead."""

    handle: Any = field(repr=False)

    async def open(self, id_: str, command: tuple[str, ...]) -> str:
        return str(await self._call("open", id_, command))

    async def send(self, id_: str, number: int, data: bytes) -> bool:
        return bool(await self._call("send", id_, number, data))

    async def receive(self, id_: str, number: int) -> bytes:
        return bytes(await self._call("receive", id_, number))

    async def close(self, id_: str) -> str:
        return str(await self._call("close", id_))

    async def _call(self, name: str, *args: object) -> Any:
        """Call a method. Repeat the call while Ray can't tell whether it arrived; the actor runs it once."""
        while True:
            try:
                return await _awaited(getattr(self.handle, name).remote(*args))
            except ActorUnavailableError:
                await sleep(UNKNOWN_WAIT_S)
            except RayError as error:
                raise ClusterError(_line(error)) from error


async def join(address: str) -> None:
    """Become a driver of a cluster. Raises `ClusterError`."""
    start = partial(
        ray.init,
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=True,
    )
    try:
        await to_thread.run_sync(start, abandon_on_cancel=True)
    except (RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ClusterError(f"can't join Ray at {address!r}: {_line(error)}") from error


async def leave() -> None:
    await to_thread.run_sync(ray.shutdown, abandon_on_cancel=True)


async def list_hosts() -> list[ClusterHost]:
    """Return the machines that are alive and have processors."""
    hosts = []
    for node in await _blocking(ray.nodes):
        processors = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
        if processors:
            hosts.append(ClusterHost(id=node["NodeID"], processors=processors))
    return sorted(hosts, key=lambda host: host.id)


async def actor_on(host: ClusterHost) -> Actor:
    """Get or create the actor of a machine, which reserves all its processors. Raises `ClusterError`."""
    options = {
        "name": f"node-{host.id}",
        "get_if_exists": True,
        "lifetime": "detached",
        "num_cpus": host.processors,
        "max_restarts": 0,
        "max_task_retries": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(host.id, soft=False),
    }
    make = ray.remote(RayActor).options(**options).remote
    return Actor(await _blocking(partial(make, IDLE_S)))


async def ask_for_slots(number: int) -> None:
    """Request a total number of processors from the autoscaler. This replaces earlier requests."""
    await _blocking(partial(request_resources, num_cpus=number))


async def _blocking(call: Any) -> Any:
    try:
        return await to_thread.run_sync(call, abandon_on_cancel=True)
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(_line(error)) from error


async def _awaited(reference: Any) -> Any:
    """Return the result of a call. If this task is canceled, cancel the call too, which would otherwise continue."""
    try:
        return await reference
    except get_cancelled_exc_class():
        with CancelScope(shield=True):
            await to_thread.run_sync(ray.cancel, reference, abandon_on_cancel=True)
        raise


def _line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return "".join(char for char in text if char.isprintable())[:500]
