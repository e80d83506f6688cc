"""Connect a manager to a Ray cluster: `python -m fleet.features.nodes.cluster.bridge FOLDER ADDRESS`.

This is a separate process, because Ray terminates a driver that loses its cluster, and the run must continue. It
listens on a socket in FOLDER that only this user can open. A client sends the ID of a machine in one line and gets the
stream of a node on that machine. Changes of the cluster are printed to stdout. The process exits when stdin closes.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    create_task_group,
    create_unix_listener,
    fail_after,
    move_on_after,
    run,
    sleep,
)
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteStream

from fleet.engine.internal_errors import unwrapped
from fleet.features.nodes.cluster.actor import CHUNK
from fleet.features.nodes.cluster.cluster_events import (
    SOCKET,
    ClusterEvent,
    ClusterFailed,
    ClusterHost,
    ClusterHosts,
    Disconnected,
)
from fleet.features.nodes.cluster.ray_client import (
    Actor,
    ClusterError,
    actor_on,
    ask_for_slots,
    join,
    leave,
    list_hosts,
)
from fleet.features.nodes.transport import FdStream, standard_streams

LISTED_S = 1.0  # how often to list the machines of the cluster
JOIN_S = 30.0
LEAVE_S = 2.0  # timeout for each step of leaving the cluster
LONGEST_NAME = 200


@dataclass(slots=True)
class Bridge:
    """One cluster."""

    manager: FdStream
    command: tuple[str, ...]
    """The command to start on its machines, or empty for the installed fleet."""
    hosts: dict[str, ClusterHost] = field(default_factory=dict)

    async def say(self, news: ClusterEvent) -> None:
        await self.manager.send(news.model_dump_json().encode() + b"\n")

    async def watch(self) -> None:
        """Report the machines of the cluster whenever they change."""
        known: list[ClusterHost] | None = None
        while True:
            if (hosts := await list_hosts()) != known:
                known, self.hosts = hosts, {host.id: host for host in hosts}
                await self.say(ClusterHosts(hosts=tuple(hosts)))
            await sleep(LISTED_S)

    async def serve(self, client: SocketStream) -> None:
        """Connect a client to the requested machine until either side closes the connection."""
        async with client:
            id_ = problem = ""
            try:
                stream = BufferedByteStream(client)
                id_ = (await stream.receive_until(b"\n", LONGEST_NAME)).decode("ascii", "replace")
                if (host := self.hosts.get(id_)) is not None:
                    await self._pass(await actor_on(host), host, stream)
            except* (EndOfStream, BrokenResourceError, ClosedResourceError):
                pass
            except* ClusterError as errors:
                problem = str(unwrapped(errors))
            if problem:
                await self.say(Disconnected(host=id_, text=problem))

    async def _pass(self, actor: Actor, host: ClusterHost, client: BufferedByteStream) -> None:
        connection = token_hex(8)
        try:
            if problem := await actor.open(connection, self.command):
                raise ClusterError(problem)
            async with create_task_group() as tasks:

                async def pass_on() -> None:
                    number = 0
                    try:
                        while True:
                            data, number = await client.receive(CHUNK), number + 1
                            if not await actor.send(connection, number, data):
                                return
                    finally:
                        tasks.cancel_scope.cancel()

                tasks.start_soon(pass_on)
                number = 1
                while data := await actor.receive(connection, number):
                    await client.send(data)
                    number += 1
                tasks.cancel_scope.cancel()
        finally:
            with CancelScope(shield=True), move_on_after(LEAVE_S):
                if said := await actor.close(connection):
                    await self.say(Disconnected(host=host.id, text=said[-2_000:]))


async def bridge(folder: Path, address: str, slots: int, command: Sequence[str]) -> int:
    """Run the bridge and return its exit code."""
    problem = ""
    with standard_streams() as stream:
        try:
            with fail_after(JOIN_S):
                await join(address)
            await _serve(Bridge(stream, tuple(command)), folder, slots)
        except* ClusterError as errors:
            problem = str(unwrapped(errors))
        except* TimeoutError:
            problem = f"Ray at {address!r} does not respond"
        except* BrokenResourceError:  # the manager is gone
            pass
        with suppress(BrokenResourceError, ClusterError):
            if problem:
                await Bridge(stream, ()).say(ClusterFailed(text=problem))
            if slots:
                with move_on_after(LEAVE_S):
                    await ask_for_slots(0)
            with move_on_after(LEAVE_S):
                await leave()
    return 1 if problem else 0


async def _serve(this: Bridge, folder: Path, slots: int) -> None:
    """Serve until the manager leaves."""
    listener = await create_unix_listener(folder / SOCKET, mode=0o600)
    async with listener, create_task_group() as tasks:
        tasks.start_soon(listener.serve, this.serve)
        tasks.start_soon(this.watch)
        if slots:
            await ask_for_slots(slots)
        with suppress(EndOfStream):
            while True:
                await this.manager.receive()
        tasks.cancel_scope.cancel()


def main(argv: Sequence[str]) -> int:
    parser = ArgumentParser("fleet.features.nodes.cluster.bridge", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("address")
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("command", nargs="*")
    args = parser.parse_args(argv)
    os.chdir(args.folder)  # Ray workers can import from the driver's working directory
    return run(bridge, args.folder, args.address, args.slots, args.command)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # don't wait for threads that are stuck on a lost cluster
