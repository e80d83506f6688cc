"""One node of a run, as the manager sees it: connected again when its stream ends, and lost when it does not come back.

Does orders through the four verbs. What comes back is taken in by `StoreObjects`, which believes nothing.
"""

import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio.lowlevel
from anyio import CancelScope, Event, Lock, create_task_group, current_time, move_on_after, sleep, to_thread

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, NodeConnected, NodeLost, Report, SetupRan, WarningNoted
from fleet.core.state.state import NOT_CONNECTED
from fleet.engine.internal_errors import failure_of, unwrapped
from fleet.features.nodes.call_desk import Desk, Patience
from fleet.features.nodes.connection import Connection, NodeRefusedError
from fleet.features.nodes.messages import FrameError
from fleet.features.nodes.node_orders import (
    AttemptDone,
    ChecksDone,
    NodeLiedError,
    NodeLostError,
    NotDone,
    OrderEvent,
    OrderReport,
    UnknownOrderError,
)
from fleet.features.nodes.reports import answers, error_of, greeted, kept
from fleet.features.nodes.transport import LinkLostError
from fleet.ports.agents import Asked, AttemptCalls, CallRefusedError, DrainingError, Dropped, InstructionsRead, Meter
from fleet.ports.orders import (
    AttemptOrder,
    AttemptResult,
    Began,
    ChecksOrder,
    NodeFailedError,
    OpenCalls,
    Order,
    Tell,
    Worked,
)
from fleet.ports.worktrees import Change, EffectError
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.commit import Arrival, IntakeError, take_in
from worktrees.leases.setup import LOG
from worktrees.sandbox.checks import write_log
from worktrees.store.packs import pack_parts
from worktrees.store.store import Store

RECONNECT_S = 1.5  # how long a stream that ended may take to come back before its orders are given to others
MOST_REFUSED = 2  # tries to reach a node that fail at once: then its host is gone, and not only the way to it
AT_ONCE_S = 1.0
LONGEST_BODY = 4_000  # characters of a worker's summary in the message of a commit
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 30.0  # between tries to connect
GOODBYE_S = 5.0
MOST_FAILED = 3  # orders in a row that it can't carry out; then it rests
REST_S = 30.0
_EXPECTED = NodeLostError | CallRefusedError | EffectError | DrainingError
"""What may end an attempt on a node, besides errors of ours in its calls."""

Connect = Callable[[], AbstractAsyncContextManager[Connection]]
"""Opens a connection. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
Notice = Callable[[NodeConnected | NodeLost | SetupRan | WarningNoted], None]
"""Takes news of a node for the journal."""


@dataclass
class StoreObjects:
    """The manager's objects: what a node lacks of them, and what comes from it."""

    store: Store
    settings: WorktreeSettings
    transcripts: Path
    logs: Path

    def pack(self, commit: Sha, have: Sequence[Sha]) -> AsyncIterator[bytes]:
        return pack_parts(self.store, commit, have)

    async def take_in(self, order: AttemptOrder, done: AttemptDone, *, late: bool = False) -> Change | Failure:
        """Commit what a node made. Raises `NodeLiedError` where it can't be honest work."""
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

    async def keep_log(self, commit: Sha | None, command: str, text: bytes) -> str:
        """Keep the log of a check on a commit, or of a set-up, beside those of this machine. Its name among them."""
        name = commit[:12] if commit is not None else LOG
        return await to_thread.run_sync(write_log, self.logs, name, command, text)

    def _keep_transcript(self, order: AttemptOrder, transcript: bytes) -> None:
        self.transcripts.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.transcripts / f"{order.brief.subtask.id}.{order.brief.attempt}.jsonl"
        with path.open("ab") as file:
            file.write(transcript)


@dataclass(slots=True)
class RemoteNode:
    """Satisfies `Node`, as long as it is not lost. Raises `NodeLostError` where it is."""

    name: str
    workers: int | None
    """How many attempts it works on at once; None until it has told how many processors it has."""
    checks: int | None
    """How many orders for checks it has at once; None until then."""
    connect: Connect
    objects: StoreObjects
    notice: Notice
    calls: OpenCalls
    """Opens the calls of an attempt, which are made here."""
    now: Callable[[], float] = time.time
    freed: Callable[[], None] = lambda: None
    """Called when it has room again: it is back, or has finished something."""
    patience_s: Callable[[Order], float] = lambda _: math.inf
    """How long nothing may be heard of an order."""
    reconnect_s: float = RECONNECT_S
    rest_s: float = REST_S
    lands: bool = False
    """Whether its verdict on a merged tree counts."""
    labels: frozenset[str] = frozenset()
    part_of: str = ""
    """The cluster that it belongs to, which may be drained as a whole."""
    drained: bool = False
    """Whether nothing new goes there, as a person asked."""
    out: str = NOT_CONNECTED
    """Why nothing is sent there; empty: it is well."""
    banned: bool = False
    """Whether it sent what it may not send: it gets nothing for the rest of the run."""
    connection: Connection | None = None
    at_work: int = 0
    """Attempts that it has."""
    checking: int = 0
    """Orders for checks that it has."""
    finished: int = 0
    lost: dict[str, AttemptOrder] = field(default_factory=dict)
    """Attempts that were given to others: what still comes of them is kept, and never lands."""
    failed: int = 0
    """Orders that it could not carry out, one after another."""
    refused: int = 0
    """How often in a row it could not be reached, and that was known at once."""
    _tired: Event = field(default_factory=Event)
    """Set when it gets nothing for a while, because it failed too often."""
    _changed: Event = field(default_factory=Event)
    _lease_s: float = 0.0
    """Of the latest connection."""
    _sending: dict[Sha, Lock] = field(default_factory=dict)
    _round: int = 0
    """Grows when the node can no longer hold what it was given before."""

    # ---- its connection

    async def run(self) -> None:
        """Keep a connection to the node until this is cancelled, or the node lied."""
        wait, finished = 0.0, 0
        while not self.banned:
            await sleep(wait)
            wait, tried = min(max(2 * wait, FIRST_WAIT_S), LONGEST_WAIT_S), current_time()
            try:
                async with self.connect() as connection, create_task_group() as tasks:
                    tasks.start_soon(connection.run)
                    self.workers, self.checks = connection.slots(self.workers, self.checks)
                    self._lease_s, self.refused = connection.lease_s, 0
                    self._set(connection, "")
                    tasks.start_soon(self._take_late, connection)
                    tasks.start_soon(self._rest, connection)
                    await connection.ended.wait()
                    held = self.at_work and current_time() > tried + self.reconnect_s
                    if self.finished > finished or held:  # one that comes and goes for nothing is asked less often
                        wait, finished = FIRST_WAIT_S if held else 0.0, self.finished  # what was killed has to end
                    self._ended(connection)
                    tasks.cancel_scope.cancel()
            except (LinkLostError, NodeRefusedError, TimeoutError, OSError) as error:
                refused = not isinstance(error, NodeRefusedError) and current_time() < tried + AT_ONCE_S
                self.refused = self.refused + 1 if refused else 0
                self._set(None, str(error) or "it did not answer in time")

    def _set(self, connection: Connection | None, out: str) -> None:
        if out and out != self.out:
            self.notice(NodeLost(at=self.now(), node=self.name, why=out, banned=self.banned))
        elif connection is not None:
            slots, commits = (self.workers or 0, self.checks or 0), len(connection.commits)
            fact = greeted(connection.greeting, self.name, slots, at=self.now(), commits=commits)
            ours = {"labels": tuple(sorted(self.labels)), "lands": self.lands, "part_of": self.part_of}
            self.notice(fact.model_copy(update={**ours, "lacks": connection.opened.lacks}))
        self.connection, self.out = connection, out
        self.freed()
        self._changed.set()
        self._changed = Event()

    def _ended(self, connection: Connection) -> None:
        if connection.broke_protocol:
            self.banned = True
        self._round += connection.silent
        self._set(None, connection.why)

    def _fails(self, why: str) -> None:
        """It could not carry out an order. Work goes elsewhere before it has failed everything that there is."""
        self.failed += 1
        if self.failed >= MOST_FAILED:
            self.rest(why)

    def rest(self, why: str) -> None:
        """Give it nothing for a while."""
        if not self.out:
            self._set(self.connection, f"it can't carry out what it is given, and is asked again later: {why}")
            self._tired.set()

    async def _rest(self, connection: Connection) -> None:
        while True:
            await self._tired.wait()
            await sleep(self.rest_s)
            self.failed, self._tired = 0, Event()
            if self.connection is connection:
                self._set(connection, "")

    async def wait_tried(self) -> None:
        """Return once the node has answered, or could not be reached."""
        while self.out == NOT_CONNECTED:
            await self._changed.wait()

    async def say_goodbye(self) -> None:
        """Let the node forget what no one asks for any more: the run's engine has stopped in good order."""
        for key in self.connection.opened.orders if self.connection is not None else ():
            await self._cancel(key)

    def ban(self, why: str) -> None:
        """Give it nothing any more."""
        self.banned = True
        self._round += 1
        if self.connection is not None:
            self.connection.end(why)
        self._set(None, why)

    async def _connected(self, began: int, *, is_paid: bool) -> Connection:
        """The connection, also one that is back in time. Raises `NodeLostError`.

        Work that was paid for is waited for as long as the node may go on with it: not where its host is gone.
        """
        first_s = self.reconnect_s
        for is_last, seconds in enumerate((first_s, self._lease_s - first_s) if is_paid else (first_s,)):
            with move_on_after(seconds):
                while self.connection is None and not self.banned and self._round == began:
                    if is_last and self.refused >= MOST_REFUSED:
                        break
                    await self._changed.wait()
        if self.connection is None or self._round != began:
            raise NodeLostError(self.out or "it was silent for too long")
        return self.connection

    # ---- orders

    async def attempt(self, key: str, order: AttemptOrder, meter: Meter, tell: Tell) -> AttemptResult:
        """Raises `NodeLostError`, `DrainingError`, or `EffectError` where the node can't do it."""
        self.at_work += 1
        try:
            with self.calls(order, meter) as calls:
                done = await self._at_desk(key, order, calls, meter=meter, tell=tell)
        except NodeLostError:
            self.lost[key] = order
            raise
        except CallRefusedError as error:
            raise self._lied(str(error)) from error
        finally:
            self.at_work -= 1
        if not isinstance(done, AttemptDone):
            raise self._lied("it answered an attempt with the report of checks")
        committed = done.refused or await self._take_in(order, done)
        await self._acknowledge(key)
        self.finished += 1
        return AttemptResult(done.outcome, committed)

    async def _at_desk(
        self, key: str, order: AttemptOrder, calls: AttemptCalls, *, meter: Meter, tell: Tell
    ) -> AttemptDone | ChecksDone:
        """The report of an attempt, whose calls are made meanwhile. Calls under way at its end are cut short."""
        try:
            async with create_task_group() as tasks:
                desk = Desk(key, calls, order.brief.operator, tasks, Patience(self.patience_s(order)))
                done = await self._report(key, order, order.base, tell, desk)
                calls.close()
                with move_on_after(GOODBYE_S):
                    await desk.wait_idle()
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            error = unwrapped(group)
            if calls.drained and isinstance(error, EffectError):
                raise DrainingError from None
            if isinstance(error, _EXPECTED) or not meter.called:
                raise error from None
            nothing = Failure(kind="other", summary="the unfinished work is on a node and could not be kept")
            done = AttemptDone(failure_of(error, "ran the worker"), refused=nothing)  # it is not paid for twice
        return done

    async def check(self, key: str, order: ChecksOrder) -> tuple[CheckRun, ...]:
        """Raises `NodeLostError`, `SetupFailedError`, or `EffectError` where the node can't do it."""
        self.checking += 1
        try:
            done = await self._report(key, order, order.commit, _nothing)
        finally:
            self.checking -= 1
        await self._acknowledge(key)
        if not isinstance(done, ChecksDone) or not answers(order, done.runs):
            raise self._lied("its report of checks is not what was asked for")
        self.finished += 1
        for setup in done.setups:
            check = await self._kept(setup.check, done.logs)
            self.notice(SetupRan(at=self.now(), setup=setup.model_copy(update={"check": check})))
        return tuple([await self._kept(run, done.logs, order.commit) for run in done.runs])

    async def _kept(self, run: CheckRun, logs: Mapping[str, bytes], commit: Sha | None = None) -> CheckRun:
        return await kept(run, self.name, logs, partial(self.objects.keep_log, commit, run.command))

    async def _report(
        self, key: str, order: Order, commit: Sha, tell: Tell, desk: Desk | None = None
    ) -> AttemptDone | ChecksDone:
        """The report of an order. Raises what `NotDone` says."""
        finished, patience = False, desk.patience if desk is not None else Patience(self.patience_s(order))
        try:
            with patience:
                async with aclosing(self._events(key, order, commit, desk)) as events:
                    async for event in events:
                        patience.heard()
                        if isinstance(event, Began | Worked):
                            await tell(Began(self.name) if isinstance(event, Began) else event)
                        elif isinstance(event, Asked | Dropped | InstructionsRead):
                            if desk is None:
                                raise self._lied("it asks for a call while it runs checks")
                            await desk.take(event)
                        elif isinstance(event, NotDone):
                            finished = True
                            await self._acknowledge(key)
                            if event.setup is None or isinstance(order, AttemptOrder):
                                self._fails(event.failure.summary)
                            setup = await self._kept(event.setup, event.logs) if event.setup is not None else None
                            raise error_of(event, self.name, setup)
                        else:
                            finished, self.failed = True, 0
                            return event
            if patience.is_over:
                self.rest(patience.why)
            raise NodeLostError(patience.why)
        finally:
            if not finished:
                await self._cancel(key)

    async def _events(self, key: str, order: Order, commit: Sha, desk: Desk | None) -> AsyncGenerator[OrderEvent, None]:
        """What happens to an order, over as many connections as it takes."""
        began, number, started = self._round, 0, False
        while True:
            connection = await self._connected(began, is_paid=desk is not None and desk.has_made_calls)
            try:
                if not started and key not in connection.opened.orders:
                    await self._send_objects(connection, commit)
                    await connection.start(key, order)
                started = True
                if desk is not None:
                    desk.attach(connection)
                async with aclosing(connection.follow(key, number)) as events:
                    async for event in events:
                        number += not isinstance(event, Asked | Dropped | InstructionsRead)
                        yield event
                        if isinstance(event, OrderReport):
                            return
            except LinkLostError as error:  # whoever sees it first ends the connection, and lets `run` see it, too
                connection.end(str(error))
                await anyio.lowlevel.checkpoint()
            except UnknownOrderError:
                raise NodeLostError("it no longer has the order") from None
            except NodeRefusedError as error:
                self.rest(str(error))
                raise NodeLostError(str(error)) from None

    async def _send_objects(self, connection: Connection, commit: Sha) -> None:
        """Make sure that the node has a commit."""
        lock = self._sending.setdefault(commit, Lock())
        async with lock:
            if commit not in connection.commits:
                await connection.store(commit, self.objects.pack(commit, sorted(connection.commits)))
        self._sending.pop(commit, None)

    async def _take_in(self, order: AttemptOrder, done: AttemptDone, *, late: bool = False) -> Change | Failure:
        try:
            return await self.objects.take_in(order, done, late=late)
        except NodeLiedError as error:
            raise self._lied(str(error)) from error

    async def _take_late(self, connection: Connection) -> None:
        """Keep what was made of attempts that others do by now; never to land."""
        for key in [key for key in connection.opened.orders if key in self.lost]:
            order = self.lost.pop(key)
            with suppress(LinkLostError, UnknownOrderError, EffectError):
                async with aclosing(connection.follow(key)) as events:
                    async for done in events:
                        if isinstance(done, Asked):  # nothing more is paid for it
                            await connection.cancel(key)
                if isinstance(done, AttemptDone) and done.commit is not None:
                    await self._take_in(order, done, late=True)
                    id_, attempt = order.brief.subtask.id, order.brief.attempt
                    text = f"node {self.name} reported attempt {attempt} at {id_} late: its work is kept, unused"
                    self.notice(WarningNoted(at=self.now(), text=text))
                await connection.acknowledge(key)

    async def _cancel(self, key: str) -> None:
        """Stop an order that no one waits for any more."""
        if (connection := self.connection) is not None:
            with CancelScope(shield=True), move_on_after(GOODBYE_S), suppress(LinkLostError, FrameError):
                await connection.cancel(key)
                await connection.acknowledge(key)

    async def _acknowledge(self, key: str) -> None:
        if self.connection is not None:
            with suppress(LinkLostError):
                await self.connection.acknowledge(key)

    def _lied(self, what: str) -> EffectError:
        """Ban the node, and say so."""
        why = f"it is not used any more: {what}"
        self.ban(why)
        summary = f"node {self.name} sent what it may not send: {what}"
        return NodeFailedError(Failure(kind="infrastructure", summary=summary))


async def _nothing(_: object) -> None:
    """What follows the steps of checks."""
