"""The manager's end of the protocol: one connection to one node for one run. All input from the node is untrusted.

Heartbeats are sent one at a time: the manager sends the next one after the node has answered the previous one. The
node counts its lease from its own answer, and the manager counts from the heartbeat it sends after that answer. So the
node always stops first, even if their clocks differ.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, assert_never

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    Event,
    WouldBlock,
    create_memory_object_stream,
    create_task_group,
    current_time,
    fail_after,
    sleep,
)
from anyio.streams.memory import MemoryObjectSendStream

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.features.nodes.messages import (
    LONGEST_TRANSCRIPT,
    Acknowledge,
    Cancel,
    CleanupDone,
    DropAttempt,
    Follow,
    Frame,
    FrameError,
    FromNode,
    Greeting,
    Heartbeat,
    Inspected,
    Instruct,
    ModelAnswer,
    ModelCall,
    NodeEvent,
    NodeMessage,
    ObjectPack,
    Open,
    OrderOpened,
    OrderRefused,
    Read,
    Start,
    Stored,
    Unknown,
    dump_instruction,
    dump_order,
    from_node,
    load_event,
)
from fleet.features.nodes.node_orders import OrderEvent, OrderReport, UnknownOrderError
from fleet.features.nodes.reports import Reports
from fleet.features.nodes.transport import Link, LinkLostError
from fleet.ports.agents import LONGEST_REQUEST, Asked, Dropped, InstructionsRead, Sign
from fleet.ports.orders import Order
from fleet.runs.crash_points import reached

BEATS_A_LEASE = 5
MOST_EVENTS = 64  # unread events per order; with more, this process is too slow


First = TypeVar("First", Greeting, OrderOpened)


class NodeRefusedError(Exception):
    """The node can't be used: it runs another version, reports a problem, or violates the protocol."""


@dataclass(slots=True)
class NodeConnection:
    """Satisfies `NodeHost` over a link that was greeted and opened."""

    link: Link
    frames: AsyncIterator[Frame]
    """The remaining frames from the node."""
    greeting: Greeting
    opened: OrderOpened
    lease_s: float
    ended: Event = field(default_factory=Event)
    why: str = ""
    """Why it ended."""
    silent: bool = False
    """Whether it ended because the lease expired without an answer. The node has then stopped its work."""
    broke_protocol: bool = False
    """Whether it ended because the node violated the protocol."""
    commits: set[Sha] = field(default_factory=set)
    """The commits on the node."""
    round_trip_s: float = 0.0
    listen: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Reads the error output of its transport."""
    _follows: "dict[str, MemoryObjectSendStream[OrderEvent | None]]" = field(default_factory=dict)
    _followed: set[str] = field(default_factory=set)
    """The keys of all orders followed over this connection."""
    _reports: Reports = field(default_factory=Reports)
    _stored: dict[Sha, tuple[Event, list[str]]] = field(default_factory=dict)
    _asked: float | None = None
    """When the unanswered heartbeat was sent."""
    _beats: int = 0
    _scope: CancelScope = field(default_factory=CancelScope)
    """Covers reading from the node."""

    def __post_init__(self) -> None:
        self.commits.update(self.opened.commits)

    async def run(self) -> None:
        """Read from the node until the connection ends, and send heartbeats."""
        async with create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            tasks.start_soon(self._beat)
            if self.listen is not None:
                tasks.start_soon(self.listen)
            try:
                async for frame in self.frames:
                    self._take(from_node(frame), frame.parts)
                self.end("the node closed the stream")
            except FrameError as error:
                self.broke_protocol = True
                self.end(f"the node violated the protocol: {error}")
            except (LinkLostError, NodeRefusedError) as error:
                self.end(str(error))

    def end(self, why: str) -> None:
        if self.ended.is_set():
            return
        self.why = why
        self.ended.set()
        for events in self._follows.values():
            events.close()
        for stored, _ in self._stored.values():
            stored.set()
        self._scope.cancel()

    def slots(self, workers: int | None, checks: int | None) -> tuple[int, int]:
        """Return the slots of the node. Unset limits default to its number of processors."""
        processors = self.greeting.processors
        return processors if workers is None else workers, processors if checks is None else checks

    # ---- the verbs

    async def start(self, key: str, order: Order) -> None:
        reached("an order is about to be given")
        await self._send(Start(key=key), dump_order(order))
        reached("an order was given")

    async def follow(self, key: str, since: int = 0) -> AsyncGenerator[OrderEvent, None]:
        """Follow an order. Raises `LinkLostError` if the connection ends first."""
        send, receive = create_memory_object_stream[OrderEvent | None](MOST_EVENTS)
        self._follows[key] = send
        self._followed.add(key)
        self._reports.expect(key, since)
        try:
            await self._send(Follow(key=key, since=since))
            async for item in receive:
                if item is None:
                    raise UnknownOrderError(key)
                yield item
                if isinstance(item, OrderReport):
                    return
            raise LinkLostError(self.why)
        finally:
            self._follows.pop(key, None)
            send.close()
            receive.close()

    async def answer(self, key: str, number: int, at: int, part: bytes, *, last: bool) -> None:
        await self._send(ModelAnswer(key=key, number=number, at=at, last=last), part)

    async def instruct(self, key: str, number: int, instruction: Instruction) -> None:
        await self._send(Instruct(key=key, number=number), dump_instruction(instruction))

    async def cancel(self, key: str) -> None:
        await self._send(Cancel(key=key))

    async def acknowledge(self, key: str) -> None:
        reached("a report is about to be acknowledged")
        await self._send(Acknowledge(key=key))
        reached("a report is acknowledged")

    # ---- objects

    async def store(self, commit: Sha, parts: AsyncIterator[bytes]) -> None:
        """Send a pack with a commit. Raises `LinkLostError`, or `NodeRefusedError` if the node rejects it."""
        stored, why = Event(), list[str]()
        self._stored[commit] = stored, why
        try:
            waiting: bytes | None = None
            async for part in parts:
                if waiting is not None:
                    await self._send(ObjectPack(commit=commit, last=False), waiting)
                waiting = part
            await self._send(ObjectPack(commit=commit, last=True), waiting or b"")
            await stored.wait()
        finally:
            del self._stored[commit]
        if not why:
            raise LinkLostError(self.why)
        if why[0]:
            raise NodeRefusedError(f"the node can't store the objects of {commit[:12]}: {why[0]}")
        self.commits.add(commit)

    # ---- inside

    async def _send(self, message: NodeMessage, *parts: bytes) -> None:
        if self.ended.is_set():
            raise LinkLostError(self.why)
        await self.link.send(message, *parts)

    async def _beat(self) -> None:
        """Send heartbeats, and end the connection if the node does not answer one within the lease."""
        with suppress(LinkLostError):  # the reader gets the same error
            while True:
                self._asked = asked = current_time()
                await self._send(Heartbeat(number=self._beats))
                while self._is_asked():
                    if current_time() >= asked + self.lease_s:
                        self.silent = True
                        self.end(f"the node did not respond for {self.lease_s:g} s")
                        return
                    await sleep(min(0.05 * self.lease_s, 0.5))
                await sleep(max(asked + self.lease_s / BEATS_A_LEASE - current_time(), 0))

    def _is_asked(self) -> bool:
        return self._asked is not None

    def _take(self, message: FromNode, parts: Sequence[bytes]) -> None:
        match message:
            case Heartbeat(number=number):
                if number != self._beats or self._asked is None:
                    raise FrameError("an answer to a heartbeat that was not sent")
                self.round_trip_s, self._asked = current_time() - self._asked, None
                self._beats += 1
            case NodeEvent(key=key, number=number):
                happened = load_event(*parts)
                self._reports.take(key, number, happened)
                self._pass(key, happened)
            case ModelCall() | DropAttempt() | Read():
                self._pass(message.key, self._sign(message, parts))
            case Unknown(key=key):
                self._reports.end(key)
                self._pass(key, None)
            case Stored(commit=commit, why=why):
                if commit not in self._stored:
                    raise FrameError("it confirmed objects that were not sent")
                event, reasons = self._stored[commit]
                reasons.append(why)
                event.set()
            case OrderRefused(why=why):
                raise NodeRefusedError(why)
            case Greeting() | OrderOpened() | Inspected() | CleanupDone():
                raise FrameError(f"unexpected `{message.type}` message in an open connection")
            case _:
                assert_never(message)

    def _sign(self, message: ModelCall | DropAttempt | Read, parts: Sequence[bytes]) -> Sign:
        if message.key not in self._followed:
            raise FrameError(f"`{message.type}` message for an unknown order")
        match message:
            case ModelCall(number=number):
                if len(parts[0]) > LONGEST_REQUEST or len(parts[1]) > LONGEST_TRANSCRIPT:
                    raise FrameError(
                        f"model call too large: {len(parts[0])} bytes, and {len(parts[1])} bytes of transcript"
                    )
                return Asked(number, *parts)
            case DropAttempt(number=number):
                return Dropped(number)
            case Read(count=count):
                return InstructionsRead(count)
            case _:
                assert_never(message)

    def _pass(self, key: str, item: OrderEvent | None) -> None:
        """Pass an event to its reader. Events without a reader are dropped, because they can be requested again."""
        if (events := self._follows.get(key)) is not None:
            try:
                events.send_nowait(item)
            except WouldBlock:
                raise LinkLostError("the events of an order arrived faster than this process reads them") from None
            except (BrokenResourceError, ClosedResourceError):
                pass


async def greet(link: Link, opening: Open, terms: bytes, *, within_s: float) -> NodeConnection:
    """Open a node for a run. Raises `LinkLostError`, `NodeRefusedError` or `TimeoutError`."""
    try:
        return await _greet(link, opening, terms, within_s)
    except FrameError as error:
        raise LinkLostError(f"the node's command did not start `fleet node --stdio`: {error}") from error


async def read_greeting(link: Link, *, within_s: float) -> Greeting:
    """Read the greeting of a node. Raises `LinkLostError`, `NodeRefusedError` or `TimeoutError`."""
    try:
        with fail_after(within_s):
            return await _next(link.frames(), Greeting)
    except FrameError as error:
        raise LinkLostError(f"the node's command did not start `fleet node --stdio`: {error}") from error


async def _greet(link: Link, opening: Open, terms: bytes, within_s: float) -> NodeConnection:
    with fail_after(within_s):
        frames = link.frames()
        greeting = await _next(frames, Greeting)
        if (greeting.protocol, greeting.version) != (opening.protocol, opening.version):
            raise NodeRefusedError(
                f"the node runs fleet {greeting.version} (protocol {greeting.protocol}), but this machine runs fleet "
                f"{opening.version} (protocol {opening.protocol}): install the same version on the node"
            )
        if greeting.problems:
            raise NodeRefusedError("; ".join(greeting.problems))
        await link.send(opening, terms)
        opened = await _next(frames, OrderOpened)
    return NodeConnection(link, frames, greeting, opened, opening.lease_s)


async def _next(frames: AsyncIterator[Frame], wanted: type[First]) -> First:
    frame = await anext(frames, None)
    if frame is None:
        raise LinkLostError("the connection closed before the node responded")
    message = from_node(frame)
    if isinstance(message, OrderRefused):
        raise NodeRefusedError(message.why)
    if not isinstance(message, wanted):
        raise NodeRefusedError(f"expected `{wanted.__name__.lower()}` from the node, got `{message.type}`")
    return message
