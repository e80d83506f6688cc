"""The kinds of nodes: which machines a table of the configuration stands for, and how a stream to each is opened.

A kind is a function of the table. What it opens names the machines as they are found, or says why there are none now.
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
"""Opens a stream to a node. Raises `LinkLostError` or `OSError`, and `UsageError` for a table that is wrong."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that can be a node."""

    name: str
    settings: NodeSettings
    reach: Reach
    part_of: str = ""
    """The table of the cluster that it belongs to."""


def at_most(settings: NodeSettings, processors: int) -> NodeSettings:
    """What is not configured is what a cluster says that a machine has, which may be less than its kernel says."""
    workers = processors if settings.workers is None else settings.workers
    checks = processors if settings.checks is None else settings.checks
    return settings.model_copy(update={"workers": min(workers, 1000), "checks": min(checks, 1000)})


News = Sequence[Machine] | str
"""Machines that were not known before, perhaps none; or why none can be reached now."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table `[nodes.NAME]`, and what is open to what it describes."""

    name: str
    settings: NodeSettings
    env: Mapping[str, str]
    """What programs are given that reach its machines."""
    folder: Path
    """For sockets; nobody else can open it."""

    @property
    def command(self) -> list[str]:
        """The words of its command line. Raises `UsageError`."""
        command = self.settings.command or ""
        try:
            return shlex.split(command)
        except ValueError as error:
            raise UsageError(f"nodes.{self.name}.command: {command!r} can't be split into words: {error}") from error


@dataclass(frozen=True, slots=True)
class Kind:
    """How the machines of a table are found."""

    place: str
    """A function of a `Table` that returns an async context manager of an async iterator of `News`, as
    `feature.module:name`. It is loaded when a table is of this kind."""
    is_cluster: bool = False
    """Whether a table stands for several machines, called NAME-something."""


KINDS = {
    "ray": Kind("nodes.cluster.cluster:ray_machines", is_cluster=True),
    "command": Kind("nodes.kinds:one_machine"),
}
"""By the key that makes a table one of this kind. The first of them counts: others have another meaning there."""


def kind_of(settings: NodeSettings) -> Kind:
    return next(kind for key, kind in KINDS.items() if getattr(settings, key) is not None)


def open_table(table: Table) -> AbstractAsyncContextManager[AsyncIterator[News]]:
    """The machines of a table, as they are found."""
    opened: AbstractAsyncContextManager[AsyncIterator[News]] = load_part(kind_of(table.settings).place)(table)
    return opened


# ---- a command whose standard streams lead to the node ---------------------------------------------------------------


@asynccontextmanager
async def one_machine(table: Table) -> AsyncIterator[AsyncIterator[News]]:
    async def news() -> AsyncIterator[News]:
        yield (machine_of(table),)

    yield news()


def machine_of(table: Table) -> Machine:
    """The machine that a command leads to."""

    @asynccontextmanager
    async def reach() -> AsyncIterator[Link]:
        words = table.command
        if not words:
            raise UsageError(
                f"nodes.{table.name}.command: is empty", hint='write it like "ssh builder fleet node --stdio"'
            )
        async with open_command(words, table.env) as stream:
            yield Link(stream)

    return Machine(table.name, table.settings, reach)


async def explained(link: Link, why: str) -> str:
    """Why a stream ended, with the last words of its command if it has one."""
    words = await link.stream.last_words() if isinstance(link.stream, CommandStream) else ""
    return f"{why} ({words})" if words else why


# ---- outside of a run ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def machines_now(wiring: Wiring, name: str = "") -> AsyncIterator[Mapping[str, Machine]]:
    """The machines that the tables of a configuration stand for now. No autoscaler is asked.

    With a name, only a cluster that this may be a machine of is looked at.
    """
    found: dict[str, Machine] = {}
    with TemporaryDirectory(prefix="fleet-nodes-") as folder:
        async with AsyncExitStack() as stack:
            for each, settings in wiring.config.named(NodeSettings).items():
                news: News = "a cluster: name one of its machines, as `fleet nodes` lists them"
                if not kind_of(settings).is_cluster or name.startswith(f"{each}-" if name else ""):
                    asked = settings.model_copy(update={"slots": None})
                    table = Table(each, asked, transport_environment(wiring), Path(folder))
                    news = await anext(await stack.enter_async_context(open_table(table)))
                if not news:
                    news = "none of its machines has processors to give"
                if isinstance(news, str):
                    news = (Machine(each, settings, partial(_nowhere, news)),)
                found |= {machine.name: machine for machine in news}
            yield found


def _nowhere(why: str) -> NoReturn:
    raise LinkLostError(why)


def transport_environment(wiring: Wiring) -> dict[str, str]:
    """What a transport is given: all that the person has (an agent of SSH, a home), but no key and no setting of ours.

    A node has a configuration of its own. A transport may need the credentials of a cloud; those stay.
    """
    models = wiring.config.models
    keys = {models.api_key_env, *(value[1:] for value in models.headers.values() if value.startswith("$"))}
    return {name: value for name, value in wiring.environ.items() if name not in keys and not name.startswith("FLEET_")}
