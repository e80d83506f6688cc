"""The program beside a manager that speaks to a Ray cluster: `python -m fleet.features.nodes.cluster.bridge`.

Its arguments are FOLDER and ADDRESS.

It has a process of its own because Ray ends the process of a driver that loses its cluster, and a run must not end with
it. It listens on a socket in FOLDER, which only this user can open: who connects names a machine in a line, and has the
stream of a node there. News of the cluster go to the standard output. It leaves when its standard input ends.
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
from fleet.features.nodes.cluster.news import SOCKET, Failed, Host, Hosts, News, Said
from fleet.features.nodes.cluster.ray_door import Actor, ClusterError, actor_on, ask_for_slots, join, leave, list_hosts
from fleet.features.nodes.transport import FdStream, standard_streams

LISTED_S = 1.0  # how often the machines of the cluster are looked up
JOIN_S = 30.0
LEAVE_S = 2.0  # how long each step of leaving may take
LONGEST_NAME = 200


@dataclass(slots=True)
class Bridge:
    """One cluster."""

    manager: FdStream
    command: tuple[str, ...]
    """What runs on its machines; empty: the fleet that is installed there."""
    hosts: dict[str, Host] = field(default_factory=dict)

    async def say(self, news: News) -> None:
        await self.manager.send(news.model_dump_json().encode() + b"\n")

    async def watch(self) -> None:
        """Report the machines of the cluster whenever they change."""
        known: list[Host] | None = None
        while True:
            if (hosts := await list_hosts()) != known:
                known, self.hosts = hosts, {host.id: host for host in hosts}
                await self.say(Hosts(hosts=tuple(hosts)))
            await sleep(LISTED_S)

    async def serve(self, client: SocketStream) -> None:
        """Connect a client with the machine that it names, until one of them leaves."""
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
                await self.say(Said(host=id_, text=problem))

    async def _pass(self, actor: Actor, host: Host, client: BufferedByteStream) -> None:
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
                    await self.say(Said(host=host.id, text=said[-2_000:]))


async def bridge(folder: Path, address: str, slots: int, command: Sequence[str]) -> int:
    """Returns the exit code."""
    problem = ""
    with standard_streams() as stream:
        try:
            with fail_after(JOIN_S):
                await join(address)
            await _serve(Bridge(stream, tuple(command)), folder, slots)
        except* ClusterError as errors:
            problem = str(unwrapped(errors))
        except* TimeoutError:
            problem = f"Ray at {address!r} does not answer"
        except* BrokenResourceError:  # the manager is gone
            pass
        with suppress(BrokenResourceError, ClusterError):
            if problem:
                await Bridge(stream, ()).say(Failed(text=problem))
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
    os.chdir(args.folder)  # Ray lets its workers import from the folder that a driver is in
    return run(bridge, args.folder, args.address, args.slots, args.command)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # a thread that waits for a cluster which is gone must not keep it
