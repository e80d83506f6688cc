"""A Ray cluster on the manager's side: a separate program talks to Ray, and each machine it finds becomes a node.

This module does not import Ray. The program exits if it loses the cluster, and is restarted whenever it exits.
"""

import math
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import AF_UNIX, socket

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    DelimiterNotFound,
    EndOfStream,
    Event,
    IncompleteRead,
    create_memory_object_stream,
    create_task_group,
    move_on_after,
    sleep,
)
from anyio.streams.buffered import BufferedByteReceiveStream

from fleet.features.nodes.cluster.cluster_events import (
    LONGEST_LINE,
    SOCKET,
    ClusterFailed,
    ClusterHost,
    ClusterHosts,
    Disconnected,
    load_cluster_event,
)
from fleet.features.nodes.kinds import NOT_JOINED, JoinedMachine, News, Table, at_most
from fleet.features.nodes.transport import LAST_WORDS_S, FdStream, Link, LinkLostError, open_command

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # between starts of the program
LONGEST_SAID = 300


def ray_problem() -> str:
    """Return why Ray can't be used on this machine, or empty if it can."""
    return "" if find_spec("ray") else "Ray is not installed on this machine: pip install 'worktree-fleet[ray]'"


@contextmanager
def connected_socket(path: Path) -> Iterator[FdStream]:
    """Connect to a socket on this machine. Raises `OSError`.

    This does not use the streams of anyio, because data that arrives while a read is canceled raises an error in the
    event loop.
    """
    with socket(AF_UNIX) as own:
        own.connect(str(path))
        own.setblocking(False)
        yield FdStream(own.fileno(), own.fileno())


@asynccontextmanager
async def ray_machines(table: Table) -> AsyncIterator[AsyncIterator[News]]:
    """Report the machines of a Ray cluster as they join, each with a unique name."""
    settings, own = table.settings, table.folder / table.name
    command = table.command
    own.mkdir(mode=0o700)
    send, receive = create_memory_object_stream[News](math.inf)
    cluster = RayCluster(table.name, settings.ray or "auto", settings.slots or 0, command, own, table.env)

    def machine(host: ClusterHost) -> JoinedMachine:
        name = f"{table.name}-{host.id[:8]}"
        return JoinedMachine(name, at_most(settings, host.processors), partial(cluster.reach, host), part_of=table.name)

    cluster.found = lambda hosts: send.send_nowait(tuple(map(machine, hosts)))
    cluster.lost = send.send_nowait
    async with create_task_group() as tasks, send, receive:
        tasks.start_soon(cluster.run)
        yield receive
        tasks.cancel_scope.cancel()


@dataclass(slots=True)
class RayCluster:
    """The machines of a cluster. `found` is called with the new machines, even if there are none."""

    name: str
    address: str
    slots: int
    """The number of processors to request from the autoscaler, or 0 for none."""
    command: Sequence[str]
    """The command to start on each machine, or empty for the installed fleet."""
    folder: Path
    """The folder for its socket. Other users can't open it."""
    env: Mapping[str, str]
    found: Callable[[Sequence[ClusterHost]], None] = lambda _: None
    lost: Callable[[str], None] = lambda _: None
    """Called with the reason when the cluster can't be used."""
    out: str = NOT_JOINED
    """Why it can't be used, or empty if it can."""
    present: frozenset[str] = frozenset()
    _known: set[str] = field(default_factory=set)
    _said: dict[str, str] = field(default_factory=dict)
    """The last error message about each machine. Untrusted."""
    _heard: Event = field(default_factory=Event)
    """Set and replaced when an error message arrives."""

    async def run(self) -> None:
        """Keep the program running until canceled."""
        wait = FIRST_WAIT_S
        while True:
            try:
                failure = ray_problem() or await self._follow()
            except OSError as error:
                failure = str(error)
            joined, self.present = not self.out, frozenset()
            if failure != self.out:
                self.out = failure
                self.lost(failure)
            wait = FIRST_WAIT_S if joined else min(2 * wait, LONGEST_WAIT_S)
            await sleep(wait)

    @asynccontextmanager
    async def reach(self, host: ClusterHost) -> AsyncIterator[Link]:
        """Connect to the node on a machine. Raises `LinkLostError` or `OSError`."""
        if host.id not in self.present:
            raise LinkLostError(self.out or "the machine is no longer in the cluster")
        self._said.pop(host.id, None)
        with connected_socket(self.folder / SOCKET) as stream:
            try:
                await stream.send(host.id.encode() + b"\n")
                yield Link(stream)
            except (BrokenResourceError, LinkLostError) as error:
                said = await self._last_words(host)
                raise LinkLostError(f"{error} ({said})" if said else str(error)) from error

    async def _last_words(self, host: ClusterHost) -> str:
        """Wait for the reason that a stream ended, which may arrive shortly after its end."""
        with move_on_after(LAST_WORDS_S):
            while host.id not in self._said:
                await self._heard.wait()
        return self._said.get(host.id, "")

    async def _follow(self) -> str:
        """Start the program and follow its news. Returns why it ended."""
        (self.folder / SOCKET).unlink(missing_ok=True)
        program = (sys.executable, "-P", "-m", "fleet.features.nodes.cluster.bridge", "--slots", str(self.slots))
        async with open_command([*program, "--", str(self.folder), self.address, *self.command], self.env) as stream:
            async with create_task_group() as tasks:
                tasks.start_soon(stream.listen)
                failure = await self._read(BufferedByteReceiveStream(stream.output))
                tasks.cancel_scope.cancel()
            words = failure or await stream.last_stderr_line()
        return f"the program that connects to Ray exited{words and ': '}{words}"

    async def _read(self, lines: BufferedByteReceiveStream) -> str:
        """Read news until they end. Returns the reason if there is one."""
        try:
            while True:
                news = load_cluster_event(await lines.receive_until(b"\n", LONGEST_LINE))
                if isinstance(news, ClusterFailed):
                    return news.text
                self._take(news)
        except (EndOfStream, IncompleteRead, BrokenResourceError, ClosedResourceError):
            return ""
        except (ValueError, DelimiterNotFound) as error:
            return str(error)

    def _take(self, news: ClusterHosts | Disconnected) -> None:
        if isinstance(news, Disconnected):
            line = news.text.strip().rpartition("\n")[2]
            self._heard.set()
            self._heard = Event()
            self._said[news.host] = "".join(char for char in line if char.isprintable())[:LONGEST_SAID]
        else:
            self.out, self.present = "", frozenset(host.id for host in news.hosts)
            new = [host for host in news.hosts if host.id not in self._known]
            self._known |= self.present
            self.found(new)
