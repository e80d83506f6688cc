"""The nodes of a run, connected: what stands behind the engine's one `Node` where other machines are configured."""

import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from anyio import create_task_group, move_on_after, to_thread

from fleet import __version__
from fleet.app.nodes.terms import stays_here, terms_of
from fleet.app.wiring import Wiring
from fleet.config.schema import NodeSettings
from fleet.core.base.ids import Sha
from fleet.core.state.facts import Failure, Report
from fleet.core.state.state import RunState
from fleet.errors import UsageError
from fleet.nodes.connection import Connection, greet, read_greeting
from fleet.nodes.messages import PROTOCOL, Greeting, Open
from fleet.nodes.placement import Placement
from fleet.nodes.remote_node import NodeLiedError, RemoteNode
from fleet.nodes.streams import Link, LinkLostError
from fleet.nodes.transport import CommandStream, open_command
from fleet.ports.nodes import AttemptDone, AttemptOrder, Node
from fleet.ports.worktrees import Change
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.intake import Arrival, IntakeError, take_in
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.store.packs import pack_parts
from worktrees.store.store import Store

GREET_S = 60.0  # how long a node may take to greet and to make itself ready
LEASE_S = 20.0
START_S = 30.0  # how long a run waits for its nodes before it begins without them
LONGEST_BODY = 4_000  # characters of a worker's summary in the message of a commit

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoreObjects:
    """Satisfies `Objects` with the manager's store."""

    store: Store
    settings: WorktreeSettings
    transcripts: Path

    def pack(self, commit: Sha, have: Sequence[Sha]) -> AsyncIterator[bytes]:
        return pack_parts(self.store, commit, have)

    async def take_in(self, order: AttemptOrder, done: AttemptDone, *, late: bool = False) -> Change | Failure:
        if done.transcript:
            await to_thread.run_sync(self._keep_transcript, order, done.transcript)
        if done.commit is None:
            return done.refused or Failure(kind="other", summary="the node made no commit")
        arrival = Arrival(done.pack, done.commit, order.base)
        signature = order.signature(done.outcome if isinstance(done.outcome, Report) else None)
        signature = replace(signature, body=signature.body[:LONGEST_BODY], unfinished=signature.unfinished or late)
        touches = order.brief.subtask.touches
        try:
            change = await take_in(self.store, arrival, signature=signature, touches=touches, settings=self.settings)
        except IntakeError as error:
            raise NodeLiedError(str(error)) from error
        if isinstance(change, Failure) and not signature.unfinished:
            raise NodeLiedError(f"its commit breaks a rule that it had to check: {change.summary}")
        return change

    def _keep_transcript(self, order: AttemptOrder, transcript: bytes) -> None:
        self.transcripts.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.transcripts / f"{order.brief.subtask.id}.{order.brief.attempt}.jsonl"
        with path.open("ab") as file:
            file.write(transcript)


@dataclass(slots=True)
class Nodes:
    """The nodes of one run. `beside` puts them beside this machine."""

    run: str
    wiring: Wiring
    remote: Sequence[RemoteNode]
    local_workers: int
    _note: Note | None = None
    _early: list[str] | None = None

    def beside(self, local: Node, note: Note) -> Node:
        self._note = note
        for text in self._early or ():
            note(text)
        return Placement(
            run=self.run,
            local=local,
            local_workers=self.local_workers,
            local_checks=self.wiring.worktrees.check_slots,
            nodes=self.remote,
            stays=stays_here(self.wiring.config),
        )

    def notice(self, text: str) -> None:
        """Pass news on to the journal; before there is one, keep it."""
        if self._note is not None:
            self._note(text)
        else:
            self._early = [*(self._early or ()), text]


@asynccontextmanager
async def open_nodes(
    wiring: Wiring, state: RunState, worktrees: RunWorktrees, transcripts: Path, local_workers: int
) -> AsyncIterator[Nodes]:
    """The configured nodes, connected as far as they answer in time. Others may come later."""
    settings = wiring.worktrees
    objects = StoreObjects(worktrees.store, settings, transcripts)
    remote: list[RemoteNode] = []
    nodes = Nodes(state.run, wiring, remote, local_workers)
    terms = terms_of(wiring)
    opening = await _opening(state, worktrees.store)
    for name, node in wiring.config.nodes.items():
        remote.append(
            RemoteNode(
                name=name,
                workers=node.workers,
                checks=node.checks,
                lands=bool(node.lands),
                connect=partial(
                    connect, wiring, name, opening.model_copy(update={"lease_s": node.lease_s or LEASE_S}), terms
                ),
                objects=objects,
                notice=nodes.notice,
            )
        )
    async with create_task_group() as tasks:
        for each in remote:
            tasks.start_soon(each.run)
        with move_on_after(START_S):
            for each in remote:
                await each.wait_tried()
        yield nodes
        for each in remote:
            await each.say_goodbye()
        tasks.cancel_scope.cancel()


async def _opening(state: RunState, store: Store) -> Open:
    object_format = await store.git.line("rev-parse", "--show-object-format")
    return Open(
        protocol=PROTOCOL,
        version=__version__,
        run=state.run,
        repository=store.home.name,
        object_format="sha256" if object_format == "sha256" else "sha1",
        base=state.base,
        lease_s=1.0,
    )


@asynccontextmanager
async def connect(wiring: Wiring, name: str, opening: Open, terms: bytes) -> AsyncIterator[Connection]:
    """A connection to a node. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
    argv = command_line(name, wiring.config.nodes[name])
    async with open_command(argv, transport_environment(wiring)) as stream:
        try:
            connection = await greet(Link(stream), opening, terms, within_s=GREET_S)
        except LinkLostError as error:
            raise LinkLostError(await _explained(stream, str(error))) from error
        connection.listen = stream.listen
        yield connection


async def probe(wiring: Wiring, name: str) -> Greeting:
    """What a node says of itself, without a run. Raises as `connect` does."""
    argv = command_line(name, wiring.config.nodes[name])
    async with open_command(argv, transport_environment(wiring)) as stream:
        try:
            return await read_greeting(Link(stream), within_s=GREET_S)
        except LinkLostError as error:
            raise LinkLostError(await _explained(stream, str(error))) from error


def transport_environment(wiring: Wiring) -> dict[str, str]:
    """What a transport is given: all that the person has (an agent of SSH, a home), but no key and no setting of ours.

    A node has a configuration of its own.
    """
    key = wiring.config.models.api_key_env
    return {name: value for name, value in wiring.environ.items() if name != key and not name.startswith("FLEET_")}


def command_line(name: str, node: NodeSettings) -> list[str]:
    """The words of a transport. Raises `UsageError`."""
    try:
        words = shlex.split(node.command)
    except ValueError as error:
        raise UsageError(f"nodes.{name}.command: {node.command!r} can't be split into words: {error}") from error
    if not words:
        raise UsageError(f"nodes.{name}.command: is empty", hint='write it like "ssh builder fleet node --stdio"')
    return words


async def _explained(stream: CommandStream, why: str) -> str:
    words = await stream.last_words()
    return f"{why} ({words})" if words else why
