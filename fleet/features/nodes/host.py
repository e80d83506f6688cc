"""The orders on one machine: each starts once, may have any number of readers, and ends with a report.

A report is written to the spool before it is sent. If a node does not hear from its manager for its lease, it stops
its work, because the manager has given it to another node by then.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from anyio import CancelScope, Event, sleep, to_thread
from anyio.abc import TaskGroup

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import CheckRun, Failure, SetupRun
from fleet.engine.internal_errors import failure_of, unwrapped
from fleet.features.nodes.call_proxy import CallChannel
from fleet.features.nodes.messages import (
    LONGEST_LOG,
    LONGEST_LOGS,
    MOST_SETUPS,
    FrameError,
    NodeEvent,
    dump_event,
    load_event,
    to_frame,
)
from fleet.features.nodes.node_orders import (
    AttemptDone,
    ChecksDone,
    NumberedEvent,
    OrderEvent,
    OrderFailed,
    OrderReport,
    UnknownOrderError,
)
from fleet.features.nodes.reports import Spool
from fleet.ports.agents import Asked, Dropped, InstructionsRead
from fleet.ports.orders import AttemptOrder, AttemptResult, ChecksOrder, Order, Progress, Tell
from fleet.ports.worktrees import Change

POLL_S = 0.2  # how often to check an order of another process on this node
LONGEST_PACK = 64 * 1024 * 1024
CANCELLED = Failure(kind="other", summary="canceled by the manager")
FENCED = Failure(kind="infrastructure", summary="the node lost its manager and stopped its work")
LEFT = Failure(kind="infrastructure", summary="the node's process exited before the order was done")
Pack = Callable[[Sha, Sha], Awaitable[bytes]]
"""Packs the objects of a commit that are not in its base."""


class Workshop(Protocol):
    """Runs orders on this machine. Raises `EffectError` if an order can't be run."""

    async def attempt(self, order: AttemptOrder, line: CallChannel, tell: Tell) -> AttemptResult: ...

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]: ...


@dataclass(frozen=True, slots=True)
class Records:
    """Setup runs and the logs of checks on this machine."""

    finished_setups: Callable[[], tuple[SetupRun, ...]] = tuple
    """Returns the setup runs since the previous call."""
    take_log: Callable[[str], bytes] = lambda _: b""
    """Removes a log by name and returns it. The result is empty if the log does not exist."""

    def logs(self, runs: Iterable[CheckRun]) -> dict[str, bytes]:
        """Return the logs to send, failures first, up to the size limit. The start of a long log is cut off."""
        logs, room = dict[str, bytes](), LONGEST_LOGS
        for run in sorted(runs, key=lambda run: run.passed):
            text = self.take_log(run.log) if run.log and run.log not in logs else b""
            if text and (text := text[-LONGEST_LOG:]) and len(text) <= room:
                logs[run.log] = text
                room -= len(text)
        return logs


@dataclass(slots=True)
class _Running:
    """An order of this process."""

    line: CallChannel
    events: list[NumberedEvent] = field(default_factory=list)
    scope: CancelScope = field(default_factory=CancelScope)
    stopped: Failure = CANCELLED
    """Why it was stopped, if it was."""

    def add(self, event: NumberedEvent) -> None:
        self.events.append(event)
        self.line.change()

    @property
    def changed(self) -> Event:
        return self.line.changed


@dataclass(slots=True)
class OrderHost:
    """Satisfies `NodeHost`. Its orders run in `tasks`."""

    node: Workshop
    pack: Pack
    transcript: Callable[[AttemptOrder, int], bytes]
    """Reads an attempt's transcript for `fleet logs` from an offset."""
    spool: Spool
    tasks: TaskGroup
    records: Records = field(default_factory=Records)
    _orders: dict[str, _Running] = field(default_factory=dict)

    async def start(self, key: str, order: Order) -> None:
        if key in self._orders or await to_thread.run_sync(self.spool.holds, key):
            return
        self._orders[key] = running = _Running(self._line(order))
        self.tasks.start_soon(self._run, key, order, running)

    def _line(self, order: Order) -> CallChannel:
        if isinstance(order, ChecksOrder):
            return CallChannel()
        return CallChannel(partial(self.transcript, order), [*order.brief.operator.told()])

    async def follow(self, key: str, since: int = 0) -> AsyncGenerator[OrderEvent, None]:
        running = self._orders.get(key)
        if running is None:
            yield await self._of_another_process(key)
            return
        number, asked, read = since, set[int](), 0
        while True:
            changed = running.changed
            for sign in running.line.signs(asked, read):
                match sign:
                    case Asked():
                        asked.add(sign.number)
                    case Dropped():
                        asked.remove(sign.number)
                    case InstructionsRead():
                        read = sign.count
                yield sign
            while number < len(running.events):
                yield running.events[number]
                number += 1
            if _is_over(running):
                return
            await changed.wait()

    async def answer(self, key: str, number: int, at: int, part: bytes, *, last: bool) -> None:
        """Forward to the order. Raises `FrameError`."""
        if (running := self._orders.get(key)) is not None:
            running.line.take(number, at, part, last=last)

    async def instruct(self, key: str, number: int, instruction: Instruction) -> None:
        """Forward to the order. Raises `FrameError`."""
        if (running := self._orders.get(key)) is not None:
            running.line.hear(number, instruction)

    async def cancel(self, key: str) -> None:
        self._stop(key, CANCELLED)

    async def acknowledge(self, key: str) -> None:
        running = self._orders.get(key)
        if running is None or _is_over(running):
            self._orders.pop(key, None)
            await to_thread.run_sync(self.spool.forget, key)

    def fence(self) -> None:
        """Stop all running orders, because the lease expired. Finished reports are kept."""
        for key in self._orders:
            self._stop(key, FENCED)

    async def wait_idle(self) -> None:
        """Return once all orders are done."""
        while running := next((each for each in self._orders.values() if not _is_over(each)), None):
            await running.changed.wait()

    def _stop(self, key: str, why: Failure) -> None:
        running = self._orders.get(key)
        if running is not None and not _is_over(running):
            running.stopped = why
            running.scope.cancel()

    async def _of_another_process(self, key: str) -> OrderEvent:
        """Wait for the report of an order that another process started."""
        while True:
            is_locked = await to_thread.run_sync(
                self.spool.is_locked, key
            )  # checked first: the report is written before the lock is released
            if (frame := await to_thread.run_sync(self.spool.get, key)) is not None:
                break
            if not is_locked:
                raise UnknownOrderError(key)
            await sleep(POLL_S)
        try:
            return load_event(*frame.parts)
        except (FrameError, TypeError):
            return OrderFailed(LEFT)

    async def _run(self, key: str, order: Order, running: _Running) -> None:
        try:
            report = await self._kept_report(key, order, running)
        except OSError as error:  # for example, the disk is full
            summary = f"the node can't store its reports: {error}"
            report = OrderFailed(Failure(kind="infrastructure", summary=summary))
        running.add(report)

    async def _kept_report(self, key: str, order: Order, running: _Running) -> OrderReport:
        """Run an order, write its report to the spool, and return it."""
        with self.spool.locked(key) as is_ours:
            report: OrderReport = OrderFailed(LEFT)
            if is_ours:
                with running.scope:
                    report = await self._carry_out(order, running)
                if running.scope.cancelled_caught:
                    report = OrderFailed(running.stopped)
                else:
                    frame = to_frame(NodeEvent(key=key, number=len(running.events)), *dump_event(report))
                    await to_thread.run_sync(self.spool.put, key, frame)
            return report

    async def _carry_out(self, order: Order, running: _Running) -> OrderReport:
        async def tell(progress: Progress) -> None:
            running.add(progress)

        try:
            if isinstance(order, ChecksOrder):
                return await self._check(await self.node.check(order))
            line = running.line
            order = replace(order, brief=replace(order.brief, operator=line))
            result = await self.node.attempt(order, line, tell)
            return await self._reported(order, line, result)
        except Exception as error:  # noqa: BLE001 - the manager decides on the reported failure
            setup: CheckRun | None = getattr(unwrapped(error), "check", None)
            logs = await to_thread.run_sync(self.records.logs, [setup] if setup is not None else [])
            return OrderFailed(failure_of(error, "carried out an order"), setup, logs)

    async def _check(self, runs: tuple[CheckRun, ...]) -> ChecksDone:
        setups = self.records.finished_setups()[-MOST_SETUPS:]
        logs = await to_thread.run_sync(self.records.logs, [*runs, *(setup.check for setup in setups)])
        return ChecksDone(runs, setups, logs)

    async def _reported(self, order: AttemptOrder, line: CallChannel, result: AttemptResult) -> AttemptDone:
        """Return the report of an attempt with its commit as a pack, and the part of its transcript not yet sent."""
        transcript = await to_thread.run_sync(self.transcript, order, line.transcribed)
        if not isinstance(result.committed, Change):
            return AttemptDone(result.outcome, refused=result.committed, transcript=transcript)
        commit = result.committed.commit
        pack = await self.pack(commit, order.base)
        if len(pack) > LONGEST_PACK:
            why = f"the packed change has {len(pack)} bytes, but a node can send at most {LONGEST_PACK}"
            refused = Failure(kind="bounds", summary=why)
            return AttemptDone(result.outcome, refused=refused, transcript=transcript)
        return AttemptDone(result.outcome, commit, pack=pack, transcript=transcript)


def _is_over(running: _Running) -> bool:
    return bool(running.events) and isinstance(running.events[-1], OrderReport)
