"""One node of a run on the manager's side. It reconnects after a broken stream, and is lost if that fails.

Orders go through the methods of `NodeHost`. `StoreObjects` checks everything that comes back.
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
from fleet.features.nodes.call_proxy import CallProxy, StallTimeout
from fleet.features.nodes.connection import NodeConnection, NodeRefusedError
from fleet.features.nodes.messages import FrameError
from fleet.features.nodes.node_orders import (
    AttemptDone,
    ChecksDone,
    NodeLiedError,
    NodeLostError,
    OrderEvent,
    OrderFailed,
    OrderReport,
    UnknownOrderError,
)
from fleet.features.nodes.reports import answers, error_of, greeted, kept
from fleet.features.nodes.transport import LinkLostError
from fleet.ports.agents import Asked, AttemptCalls, CallRefusedError, DrainingError, Dropped, InstructionsRead, Meter
from fleet.ports.orders import (
    AttemptOrder,
    AttemptResult,
    ChecksOrder,
    NodeFailedError,
    OpenCalls,
    Order,
    Tell,
    WorkerFinished,
    WorktreeReady,
)
from fleet.ports.worktrees import Change, EffectError
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.commit import Arrival, IntakeError, take_in
from worktrees.leases.setup import LOG
from worktrees.sandbox.checks import write_log
from worktrees.store.packs import pack_parts
from worktrees.store.store import Store

RECONNECT_S = 1.5  # time to reconnect before the node's orders go to other machines
MOST_REFUSED = 2  # immediate connection failures, after which the host itself counts as gone
AT_ONCE_S = 1.0
LONGEST_BODY = 4_000  # characters of a worker's summary in the commit message
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 30.0  # between connection attempts
GOODBYE_S = 5.0
MOST_FAILED = 3  # consecutive failed orders before it is paused
REST_S = 30.0
_EXPECTED = NodeLostError | CallRefusedError | EffectError | DrainingError
"""Errors that may end an attempt on a node, other than our own errors in its calls."""

Connect = Callable[[], AbstractAsyncContextManager[NodeConnection]]
"""Opens a connection. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
Notice = Callable[[NodeConnected | NodeLost | SetupRan | WarningNoted], None]
"""Records facts about a node in the journal."""


@dataclass
class StoreObjects:
    """The manager's objects: it packs objects for nodes and takes in the commits of nodes."""

    store: Store
    settings: WorktreeSettings
    transcripts: Path
    logs: Path

    def pack(self, commit: Sha, have: Sequence[Sha]) -> AsyncIterator[bytes]:
        return pack_parts(self.store, commit, have)

    async def take_in(self, order: AttemptOrder, done: AttemptDone, *, late: bool = False) -> Change | Failure:
        """Take in the commit of a node. Raises `NodeLiedError` if an honest node can't have made it."""
        if done.transcript:
            await to_thread.run_sync(self._keep_transcript, order, done.transcript)
        if done.commit is None:
            return done.refused or Failure(kind="other", summary="the node did not send a commit")
        arrival = Arrival(done.pack, done.commit, order.base)
        signature = order.signature(done.outcome if isinstance(done.outcome, Report) else None)
        signature = replace(signature, body=signature.body[:LONGEST_BODY], unfinished=signature.unfinished or late)
        touches = order.brief.subtask.touches
        try:
            change = await take_in(self.store, arrival, signature=signature, touches=touches, settings=self.settings)
        except IntakeError as error:
            raise NodeLiedError(str(error)) from error
        if isinstance(change, Failure) and not signature.unfinished:
            raise NodeLiedError(f"its commit violates a rule that the node must check: {change.summary}")
        return change

    async def keep_log(self, commit: Sha | None, command: str, text: bytes) -> str:
        """Store the log of a check or a setup command with this machine's logs, and return its name."""
        name = commit[:12] if commit is not None else LOG
        return await to_thread.run_sync(write_log, self.logs, name, command, text)

    def _keep_transcript(self, order: AttemptOrder, transcript: bytes) -> None:
        self.transcripts.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.transcripts / f"{order.brief.subtask.id}.{order.brief.attempt}.jsonl"
        with path.open("ab") as file:
            file.write(transcript)


@dataclass(slots=True)
class RemoteNode:
    """Satisfies `Node`. Raises `NodeLostError` if the node is lost."""

    name: str
    workers: int | None
    """The maximum of concurrent attempts, or None until the node has reported its processors."""
    checks: int | None
    """The maximum of concurrent check orders, or None until then."""
    connect: Connect
    objects: StoreObjects
    notice: Notice
    calls: OpenCalls
    """Opens the model calls of an attempt, which this machine makes."""
    now: Callable[[], float] = time.time
    freed: Callable[[], None] = lambda: None
    """Called when the node is back or has finished an order."""
    patience_s: Callable[[Order], float] = lambda _: math.inf
    """Returns how long an order may be silent."""
    reconnect_s: float = RECONNECT_S
    rest_s: float = REST_S
    lands: bool = False
    """Whether its check results on merged trees are trusted."""
    labels: frozenset[str] = frozenset()
    part_of: str = ""
    """The name of its cluster. A cluster can be drained with a single request."""
    drained: bool = False
    """Whether you drained it, so that it gets no new work."""
    out: str = NOT_CONNECTED
    """Why it can't be used, or empty if it can."""
    banned: bool = False
    """Whether it violated the protocol and is not used for the rest of the run."""
    connection: NodeConnection | None = None
    at_work: int = 0
    """The number of its attempts."""
    checking: int = 0
    """The number of its check orders."""
    finished: int = 0
    lost: dict[str, AttemptOrder] = field(default_factory=dict)
    """Attempts that were given to other machines. Late results are kept, but never land."""
    failed: int = 0
    """The number of consecutive failed orders."""
    refused: int = 0
    """The number of consecutive connection attempts that failed immediately."""
    _tired: Event = field(default_factory=Event)
    """Set while it is paused after too many failures."""
    _changed: Event = field(default_factory=Event)
    _lease_s: float = 0.0
    """The lease of the latest connection."""
    _sending: dict[Sha, Lock] = field(default_factory=dict)
    _round: int = 0
    """Incremented when the node has certainly dropped its earlier orders."""

    # ---- connection

    async def run(self) -> None:
        """Keep a connection to the node until canceled, or until the node is banned."""
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
                    if (
                        self.finished > finished or held
                    ):  # a node that only connects and disconnects is retried less often
                        wait, finished = (
                            FIRST_WAIT_S if held else 0.0,
                            self.finished,
                        )  # killed processes need time to end
                    self._ended(connection)
                    tasks.cancel_scope.cancel()
            except (LinkLostError, NodeRefusedError, TimeoutError, OSError) as error:
                refused = not isinstance(error, NodeRefusedError) and current_time() < tried + AT_ONCE_S
                self.refused = self.refused + 1 if refused else 0
                self._set(None, str(error) or "the node timed out")

    def _set(self, connection: NodeConnection | None, out: str) -> None:
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

    def _ended(self, connection: NodeConnection) -> None:
        if connection.broke_protocol:
            self.banned = True
        self._round += connection.silent
        self._set(None, connection.why)

    def _fails(self, why: str) -> None:
        """Count a failed order. After several in a row, pause the node so that it does not fail all orders."""
        self.failed += 1
        if self.failed >= MOST_FAILED:
            self.rest(why)

    def rest(self, why: str) -> None:
        """Pause the node."""
        if not self.out:
            self._set(self.connection, f"paused for {self.rest_s:g} s after failed orders: {why}")
            self._tired.set()

    async def _rest(self, connection: NodeConnection) -> None:
        while True:
            await self._tired.wait()
            await sleep(self.rest_s)
            self.failed, self._tired = 0, Event()
            if self.connection is connection:
                self._set(connection, "")

    async def wait_tried(self) -> None:
        """Return once the node has responded or failed to connect."""
        while self.out == NOT_CONNECTED:
            await self._changed.wait()

    async def say_goodbye(self) -> None:
        """Cancel the remaining orders when the run's engine stops normally."""
        for key in self.connection.opened.orders if self.connection is not None else ():
            await self._cancel(key)

    def ban(self, why: str) -> None:
        """Stop using the node for the rest of the run."""
        self.banned = True
        self._round += 1
        if self.connection is not None:
            self.connection.end(why)
        self._set(None, why)

    async def _connected(self, began: int, *, is_paid: bool) -> NodeConnection:
        """Return the connection, and wait for a reconnect if needed. Raises `NodeLostError`.

        For work that was paid for, wait as long as the node may continue it, unless its host is gone.
        """
        first_s = self.reconnect_s
        for is_last, seconds in enumerate((first_s, self._lease_s - first_s) if is_paid else (first_s,)):
            with move_on_after(seconds):
                while self.connection is None and not self.banned and self._round == began:
                    if is_last and self.refused >= MOST_REFUSED:
                        break
                    await self._changed.wait()
        if self.connection is None or self._round != began:
            raise NodeLostError(self.out or "the node did not respond in time")
        return self.connection

    # ---- orders

    async def attempt(self, key: str, order: AttemptOrder, meter: Meter, tell: Tell) -> AttemptResult:
        """Run an attempt. Raises `NodeLostError`, `DrainingError`, or `EffectError` if the node can't run it."""
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
            raise self._lied("a report of checks for an attempt")
        committed = done.refused or await self._take_in(order, done)
        await self._acknowledge(key)
        self.finished += 1
        return AttemptResult(done.outcome, committed)

    async def _at_desk(
        self, key: str, order: AttemptOrder, calls: AttemptCalls, *, meter: Meter, tell: Tell
    ) -> AttemptDone | ChecksDone:
        """Make the calls of an attempt and return its report. Calls still running at the end are canceled."""
        try:
            async with create_task_group() as tasks:
                desk = CallProxy(key, calls, order.brief.operator, tasks, StallTimeout(self.patience_s(order)))
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
            nothing = Failure(kind="other", summary="could not retrieve the unfinished work from the node")
            done = AttemptDone(failure_of(error, "ran the worker"), refused=nothing)  # don't pay for it twice
        return done

    async def check(self, key: str, order: ChecksOrder) -> tuple[CheckRun, ...]:
        """Run checks. Raises `NodeLostError`, `SetupFailedError`, or `EffectError` if the node can't run them."""
        self.checking += 1
        try:
            done = await self._report(key, order, order.commit, _nothing)
        finally:
            self.checking -= 1
        await self._acknowledge(key)
        if not isinstance(done, ChecksDone) or not answers(order, done.runs):
            raise self._lied("results that don't match the requested checks")
        self.finished += 1
        for setup in done.setups:
            check = await self._kept(setup.check, done.logs)
            self.notice(SetupRan(at=self.now(), setup=setup.model_copy(update={"check": check})))
        return tuple([await self._kept(run, done.logs, order.commit) for run in done.runs])

    async def _kept(self, run: CheckRun, logs: Mapping[str, bytes], commit: Sha | None = None) -> CheckRun:
        return await kept(run, self.name, logs, partial(self.objects.keep_log, commit, run.command))

    async def _report(
        self, key: str, order: Order, commit: Sha, tell: Tell, desk: CallProxy | None = None
    ) -> AttemptDone | ChecksDone:
        """Return the report of an order. Raises the error of a `OrderFailed`."""
        finished, patience = False, desk.patience if desk is not None else StallTimeout(self.patience_s(order))
        try:
            with patience:
                async with aclosing(self._events(key, order, commit, desk)) as events:
                    async for event in events:
                        patience.heard()
                        if isinstance(event, WorktreeReady | WorkerFinished):
                            await tell(WorktreeReady(self.name) if isinstance(event, WorktreeReady) else event)
                        elif isinstance(event, Asked | Dropped | InstructionsRead):
                            if desk is None:
                                raise self._lied("a model call during checks")
                            await desk.take(event)
                        elif isinstance(event, OrderFailed):
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

    async def _events(
        self, key: str, order: Order, commit: Sha, desk: CallProxy | None
    ) -> AsyncGenerator[OrderEvent, None]:
        """Follow an order across connections."""
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
            except LinkLostError as error:  # ends the connection, so that `run` notices
                connection.end(str(error))
                await anyio.lowlevel.checkpoint()
            except UnknownOrderError:
                raise NodeLostError("the node no longer has the order") from None
            except NodeRefusedError as error:
                self.rest(str(error))
                raise NodeLostError(str(error)) from None

    async def _send_objects(self, connection: NodeConnection, commit: Sha) -> None:
        """Send a commit to the node if it does not have it."""
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

    async def _take_late(self, connection: NodeConnection) -> None:
        """Keep the results of attempts that were given to other machines. They never land."""
        for key in [key for key in connection.opened.orders if key in self.lost]:
            order = self.lost.pop(key)
            with suppress(LinkLostError, UnknownOrderError, EffectError):
                async with aclosing(connection.follow(key)) as events:
                    async for done in events:
                        if isinstance(done, Asked):  # don't pay for more calls
                            await connection.cancel(key)
                if isinstance(done, AttemptDone) and done.commit is not None:
                    await self._take_in(order, done, late=True)
                    id_, attempt = order.brief.subtask.id, order.brief.attempt
                    text = f"node {self.name} reported attempt {attempt} at {id_} late: its work is kept but not used"
                    self.notice(WarningNoted(at=self.now(), text=text))
                await connection.acknowledge(key)

    async def _cancel(self, key: str) -> None:
        """Cancel an order whose result is no longer needed."""
        if (connection := self.connection) is not None:
            with CancelScope(shield=True), move_on_after(GOODBYE_S), suppress(LinkLostError, FrameError):
                await connection.cancel(key)
                await connection.acknowledge(key)

    async def _acknowledge(self, key: str) -> None:
        if self.connection is not None:
            with suppress(LinkLostError):
                await self.connection.acknowledge(key)

    def _lied(self, what: str) -> EffectError:
        """Ban the node, and return the error for its order."""
        why = f"banned for the rest of the run: {what}"
        self.ban(why)
        summary = f"node {self.name} violated the protocol: {what}"
        return NodeFailedError(Failure(kind="infrastructure", summary=summary))


async def _nothing(_: object) -> None:
    """Ignore the progress of checks."""
