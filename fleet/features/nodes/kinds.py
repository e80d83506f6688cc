"""The kinds of nodes: they find the machines of a `[nodes.NAME]` table and open streams to them.

A kind is a function of the table. It reports machines as it finds them, or why there are none.
"""

import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from fleet.app.wiring import Wiring
from fleet.errors import UsageError
from fleet.features.nodes.settings import NodeSettings
from fleet.features.nodes.transport import CommandStream, Link, LinkLostError, open_command
from fleet.features.parts import load_part

NOT_JOINED = "not joined yet"
Reach = Callable[[], AbstractAsyncContextManager[Link]]
"""Opens a stream to a node. Raises `LinkLostError` or `OSError`, or `UsageError` if the table is invalid."""


@dataclass(frozen=True, slots=True)
class JoinedMachine:
    """A machine that can serve as a node."""

    name: str
    settings: NodeSettings
    reach: Reach
    part_of: str = ""
    """The name of the cluster's table, if it belongs to a cluster."""


def at_most(settings: NodeSettings, processors: int) -> NodeSettings:
    """Fill in unset limits with the processors that the cluster reports, which may be less than the machine has."""
    workers = processors if settings.workers is None else settings.workers
    checks = processors if settings.checks is None else settings.checks
    return settings.model_copy(update={"workers": min(workers, 1000), "checks": min(checks, 1000)})


News = Sequence[JoinedMachine] | str
"""New machines, possibly none, or the reason that no machine can be reached."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table `[nodes.NAME]`, with the environment and folder for its programs."""

    name: str
    settings: NodeSettings
    env: Mapping[str, str]
    """The environment of the programs that connect to its machines."""
    folder: Path
    """The folder for sockets. Other users can't open it."""

    @property
    def command(self) -> list[str]:
        """Split its command line. Raises `UsageError`."""
        command = self.settings.command or ""
        try:
            return shlex.split(command)
        except ValueError as error:
            raise UsageError(f"nodes.{self.name}.command: {command!r} is not a valid shell command: {error}") from error


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A way to find the machines of a table."""

    place: str
    """A function of a `Table` that returns an async context manager of an async iterator of `News`, as
    `feature.module:name`. It is only loaded for tables of this kind."""
    is_cluster: bool = False
    """Whether a table describes several machines, named NAME-SUFFIX."""


KINDS = {
    "ray": NodeKind("nodes.cluster.cluster:ray_machines", is_cluster=True),
    "command": NodeKind("nodes.kinds:one_machine"),
}
"""Kinds by the key that selects them. If several keys are set, the first kind is used."""


def kind_of(settings: NodeSettings) -> NodeKind:
    return next(kind for key, kind in KINDS.items() if getattr(settings, key) is not None)


def open_table(table: Table) -> AbstractAsyncContextManager[AsyncIterator[News]]:
    """Find the machines of a table, and report them as they appear."""
    opened: AbstractAsyncContextManager[AsyncIterator[News]] = load_part(kind_of(table.settings).place)(table)
    return opened


# ---- a command whose standard streams lead to the node ---------------------------------------------------------------


@asynccontextmanager
async def one_machine(table: Table) -> AsyncIterator[AsyncIterator[News]]:
    async def news() -> AsyncIterator[News]:
        yield (machine_of(table),)

    yield news()


def machine_of(table: Table) -> JoinedMachine:
    """Return the machine of a command."""

    @asynccontextmanager
    async def reach() -> AsyncIterator[Link]:
        words = table.command
        if not words:
            raise UsageError(
                f"nodes.{table.name}.command is empty", hint='for example: command = "ssh builder fleet node --stdio"'
            )
        async with open_command(words, table.env) as stream:
            yield Link(stream)

    return JoinedMachine(table.name, table.settings, reach)


async def explained(link: Link, why: str) -> str:
    """Return why a stream ended, with the last error line of its command if there is one."""
    words = await link.stream.last_stderr_line() if isinstance(link.stream, CommandStream) else ""
    return f"{why} ({words})" if words else why


# ---- outside of a run ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def machines_now(wiring: Wiring, name: str = "") -> AsyncIterator[Mapping[str, JoinedMachine]]:
    """Find the machines of all tables, without requesting machines from an autoscaler.

    With a name, only look at clusters that may contain that machine.
    """
    found: dict[str, JoinedMachine] = {}
    with TemporaryDirectory(prefix="fleet-nodes-") as folder:
        async with AsyncExitStack() as stack:
            for each, settings in wiring.config.named(NodeSettings).items():
                news: News = "this is a cluster: use the name of one of its machines, listed by `fleet nodes`"
                if not kind_of(settings).is_cluster or name.startswith(f"{each}-" if name else ""):
                    asked = settings.model_copy(update={"slots": None})
                    table = Table(each, asked, transport_environment(wiring), Path(folder))
                    news = await anext(await stack.enter_async_context(open_table(table)))
                if not news:
                    news = "none of its machines has free processors"
                if isinstance(news, str):
                    news = (JoinedMachine(each, settings, partial(_nowhere, news)),)
                found |= {machine.name: machine for machine in news}
            yield found


def _nowhere(why: str) -> NoReturn:
    raise LinkLostError(why)


def transport_environment(wiring: Wiring) -> dict[str, str]:
    """Return the environment of a transport: the user's variables, without model keys and settings of fleet.

    A node has its own configuration. Cloud credentials are kept, because a transport may need them.
    """
    models = wiring.config.models
    keys = {models.api_key_env, *(value[1:] for value in models.headers.values() if value.startswith("$"))}
    return {name: value for name, value in wiring.environ.items() if name not in keys and not name.startswith("FLEET_")}
