"""A Ray cluster as the manager sees it: a program beside it speaks to Ray, and each machine found is one more node.

Nothing here imports Ray. The program is started again when it ends, as it does when the cluster is lost.
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

from fleet.features.nodes.cluster.news import LONGEST_LINE, SOCKET, Failed, Host, Hosts, Said, load_news
from fleet.features.nodes.kinds import NOT_JOINED, Machine, News, Table, at_most
from fleet.features.nodes.transport import LAST_WORDS_S, FdStream, Link, LinkLostError, open_command

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # between starts of the program
LONGEST_SAID = 300


def ray_problem() -> str:
    """Why Ray can't be used from here; empty if it can."""
    return "" if find_spec("ray") else "Ray is not installed here: pip install 'worktree-fleet[ray]'"


@contextmanager
def connected_socket(path: Path) -> Iterator[FdStream]:
    """A stream to a socket of this machine. Raises `OSError`.

    Not anyio's own: what arrives just when its reading is cancelled is an error in the event loop.
    """
    with socket(AF_UNIX) as own:
        own.connect(str(path))
        own.setblocking(False)
        yield FdStream(own.fileno(), own.fileno())


@asynccontextmanager
async def ray_machines(table: Table) -> AsyncIterator[AsyncIterator[News]]:
    """The machines of a Ray cluster, each under a name of its own, as they join it."""
    settings, own = table.settings, table.folder / table.name
    command = table.command
    own.mkdir(mode=0o700)
    send, receive = create_memory_object_stream[News](math.inf)
    cluster = RayCluster(table.name, settings.ray or "auto", settings.slots or 0, command, own, table.env)

    def machine(host: Host) -> Machine:
        name = f"{table.name}-{host.id[:8]}"
        return Machine(name, at_most(settings, host.processors), partial(cluster.reach, host), part_of=table.name)

    cluster.found = lambda hosts: send.send_nowait(tuple(map(machine, hosts)))
    cluster.lost = send.send_nowait
    async with create_task_group() as tasks, send, receive:
        tasks.start_soon(cluster.run)
        yield receive
        tasks.cancel_scope.cancel()


@dataclass(slots=True)
class RayCluster:
    """The machines of a cluster. `found` is called with those that were not known before, also if there are none."""

    name: str
    address: str
    slots: int
    """How many processors the autoscaler is asked for; 0: it is not asked."""
    command: Sequence[str]
    """What is started on each machine; empty: the fleet that is installed there."""
    folder: Path
    """For its socket; nobody else can open it."""
    env: Mapping[str, str]
    found: Callable[[Sequence[Host]], None] = lambda _: None
    lost: Callable[[str], None] = lambda _: None
    """Called with the reason when the cluster can't be used."""
    out: str = NOT_JOINED
    """Why it can't be used now; empty: it can."""
    present: frozenset[str] = frozenset()
    _known: set[str] = field(default_factory=set)
    _said: dict[str, str] = field(default_factory=dict)
    """The last words about each machine. Untrusted."""
    _heard: Event = field(default_factory=Event)
    """Set, and replaced, with any last words."""

    async def run(self) -> None:
        """Keep the program running until this is cancelled."""
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
    async def reach(self, host: Host) -> AsyncIterator[Link]:
        """A stream to the node on a machine. Raises `LinkLostError` or `OSError`."""
        if host.id not in self.present:
            raise LinkLostError(self.out or "it is no longer in the cluster")
        self._said.pop(host.id, None)
        with connected_socket(self.folder / SOCKET) as stream:
            try:
                await stream.send(host.id.encode() + b"\n")
                yield Link(stream)
            except (BrokenResourceError, LinkLostError) as error:
                said = await self._last_words(host)
                raise LinkLostError(f"{error} ({said})" if said else str(error)) from error

    async def _last_words(self, host: Host) -> str:
        """Why a stream ended, which may arrive just after its end."""
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
            words = failure or await stream.last_words()
        return f"the program that speaks to Ray ended{words and ': '}{words}"

    async def _read(self, lines: BufferedByteReceiveStream) -> str:
        """Read news until there are no more. Returns the reason, if the last one gives any."""
        try:
            while True:
                news = load_news(await lines.receive_until(b"\n", LONGEST_LINE))
                if isinstance(news, Failed):
                    return news.text
                self._take(news)
        except (EndOfStream, IncompleteRead, BrokenResourceError, ClosedResourceError):
            return ""
        except (ValueError, DelimiterNotFound) as error:
            return str(error)

    def _take(self, news: Hosts | Said) -> None:
        if isinstance(news, Said):
            line = news.text.strip().rpartition("\n")[2]
            self._heard.set()
            self._heard = Event()
            self._said[news.host] = "".join(char for char in line if char.isprintable())[:LONGEST_SAID]
        else:
            self.out, self.present = "", frozenset(host.id for host in news.hosts)
            new = [host for host in news.hosts if host.id not in self._known]
            self._known |= self.present
            self.found(new)
