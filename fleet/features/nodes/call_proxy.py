"""The manager's end of an attempt's line: it makes the attempt's model calls and forwards the operator's instructions.

A desk lives as long as its attempt, across connections. Calls are numbered and made once: if the node repeats a call
after a broken link, it gets the same answer. All input from the node is untrusted.
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from anyio import CancelScope, CapacityLimiter, Event, current_time, to_thread
from anyio.abc import TaskGroup

from fleet.core.facts.fact_parts import Instruction
from fleet.features.nodes.messages import FrameError
from fleet.features.nodes.node_orders import NodeHost
from fleet.features.nodes.transport import LinkLostError
from fleet.ports.agents import (
    LONGEST_ANSWER,
    MOST_CALLS,
    Asked,
    AttemptCalls,
    CallRefusedError,
    Dropped,
    InstructionsRead,
    Sign,
)
from fleet.ports.operator import Operator

# ---- patience --------------------------------------------------------------------------------------------------------
# A limit on the silence of an order: a node that sends heartbeats may still never finish an order.


@dataclass(slots=True)
class StallTimeout:
    """Cancels its block after a period without input from the node. Time that the node waits for us does not count."""

    seconds: float = math.inf
    scope: CancelScope = field(default_factory=CancelScope)
    _rests: bool = False

    def __enter__(self) -> Self:
        self.scope.__enter__()
        self.heard()
        return self

    def __exit__(self, *error: object) -> bool | None:
        return self.scope.__exit__(*error)  # type: ignore[arg-type] # what `with` passes

    def heard(self) -> None:
        """Restart the period, because the node sent something."""
        if not self._rests:
            self.scope.deadline = current_time() + self.seconds

    def rest(self) -> None:
        """Stop counting while the node waits for us."""
        self._rests, self.scope.deadline = True, math.inf

    def go_on(self) -> None:
        """Count again."""
        self._rests = False
        self.heard()

    @property
    def is_over(self) -> bool:
        return self.scope.cancelled_caught

    @property
    def why(self) -> str:
        """Why the report is missing."""
        return (
            f"an order timed out after {self.seconds:.0f} s without output" if self.is_over else "the report is missing"
        )


# ---- desk ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class CallReply:
    """Satisfies `Reply`. Its parts are kept until the node has all of them."""

    parts: list[bytes] = field(default_factory=list)
    complete: bool = False
    dropped: Event = field(default_factory=Event)
    changed: Event = field(default_factory=Event)

    @property
    def is_dropped(self) -> bool:
        return self.dropped.is_set()

    async def send(self, part: bytes) -> None:
        if not self.is_dropped:
            self.parts.append(part)
            self._change()

    def end(self) -> None:
        """Append the last part, which is empty."""
        self.parts.append(b"")
        self.complete = True
        self._change()

    def drop(self) -> None:
        self.dropped.set()
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = Event()


@dataclass(slots=True)
class CallProxy:
    """Serves one attempt. Its tasks end with `tasks`."""

    key: str
    calls: AttemptCalls
    operator: Operator
    tasks: TaskGroup
    patience: StallTimeout = field(default_factory=StallTimeout)
    """The limit on the node's silence. It is suspended while the node waits for an answer."""
    host: NodeHost | None = None
    """The current connection of the attempt."""
    _next: int = 0
    """The number of the next new call."""
    _replies: dict[int, CallReply] = field(default_factory=dict)
    _making: int = 0
    _idle: Event = field(default_factory=Event)
    _telling: CancelScope = field(default_factory=CancelScope)

    def attach(self, host: NodeHost) -> None:
        """Continue over a new connection. The node repeats its unanswered calls."""
        self._telling.cancel()
        self.host, self._telling = host, CancelScope()
        self.tasks.start_soon(self._instruct, host, self._telling)

    @property
    def has_made_calls(self) -> bool:
        return self._next > 0

    async def take(self, sign: Sign) -> None:
        """Handle a sign from the node. Raises `CallRefusedError`."""
        match sign:
            case Asked(number=number):
                if (reply := self._replies.get(number)) is None:
                    reply = self._begin(number, sign)
                if self.host is not None:
                    self.tasks.start_soon(self._deliver, self.host, number, reply)
            case Dropped(number=number):
                if (reply := self._replies.pop(number, None)) is not None:
                    reply.drop()
            case InstructionsRead(count=count):
                if count > len(self.operator.told()):
                    raise CallRefusedError("it reports more instructions as read than were sent")
                await self.operator.mark_read(count)

    async def wait_idle(self) -> None:
        """Return once all calls are done."""
        while self._making:
            await self._idle.wait()

    def _begin(self, number: int, asked: Asked) -> CallReply:
        """Start a new call."""
        if number < self._next:
            raise CallRefusedError("it repeats a call whose answer it already received")
        if len(self._replies) >= MOST_CALLS:
            raise CallRefusedError(f"it makes more than {MOST_CALLS} concurrent calls")
        self._next = number + 1
        self._replies[number] = reply = CallReply()
        self.calls.keep(asked.transcript)
        self._making += 1
        self.patience.rest()
        self.tasks.start_soon(self._make, asked.request, reply)
        return reply

    async def _make(self, request: bytes, reply: CallReply) -> None:
        try:
            await self.calls.answer(request, reply)
            reply.end()
        finally:
            self._making -= 1
            if not self._making:
                self.patience.go_on()
            self._idle.set()
            self._idle = Event()

    async def _deliver(self, host: NodeHost, number: int, reply: CallReply) -> None:
        at = 0
        with suppress(LinkLostError):  # the node repeats the call
            while not reply.is_dropped:
                changed = reply.changed
                while at < len(reply.parts):
                    last = reply.complete and at == len(reply.parts) - 1
                    await host.answer(self.key, number, at, reply.parts[at], last=last)
                    at += 1
                    if last:
                        return
                await changed.wait()

    async def _instruct(self, host: NodeHost, scope: CancelScope) -> None:
        number = 0
        with scope, suppress(LinkLostError):
            while True:
                for instruction in self.operator.told(number):
                    await host.instruct(self.key, number, instruction)
                    number += 1
                await self.operator.wait_told(number)


# ---- call line -------------------------------------------------------------------------------------------------------
# The node's end of an attempt's line to its manager. It sends model calls and receives the operator's instructions.
#
# It outlives the link. Unanswered calls are sent again over the next link under the same number, so the manager does
# not make a call twice.


MOST_INSTRUCTIONS = 1_000


@dataclass(slots=True)
class _Answer:
    """The parts of an answer that have arrived."""

    asked: Asked
    parts: list[bytes] = field(default_factory=list)
    complete: bool = False
    size: int = 0
    changed: Event = field(default_factory=Event)

    def take(self, at: int, part: bytes, *, last: bool) -> None:
        """Add the next part; parts that already arrived are ignored. Raises `FrameError`."""
        if at < len(self.parts) or self.complete:
            return
        self.size += len(part)
        if at > len(self.parts) or self.size > LONGEST_ANSWER:
            raise FrameError("the answer to a call has a gap" if at > len(self.parts) else "an answer is too long")
        self.parts.append(part)
        self.complete = last
        self.changed.set()
        self.changed = Event()

    async def read(self) -> AsyncIterator[bytes]:
        at = 0
        while True:
            changed = self.changed
            while at < len(self.parts):
                part, self.parts[at] = self.parts[at], b""  # each part is only read once
                at += 1
                yield part
            if self.complete:
                return
            await changed.wait()


@dataclass(slots=True)
class CallChannel(Operator):
    """Satisfies `CallLine`, and `Operator` with the instructions that the manager forwards."""

    read_transcript: Callable[[int], bytes] = lambda _: b""
    """Reads the attempt's transcript from an offset."""
    instructions: list[Instruction] = field(default_factory=list)
    changed: Event = field(default_factory=Event)
    """Set and replaced when followers have something to read."""
    called: bool = False
    """Whether the attempt made a call."""
    transcribed: int = 0
    """The number of transcript bytes sent with calls."""
    _asked: int = 0
    _open: dict[int, _Answer] = field(default_factory=dict)
    _read: int = 0
    _told: Event = field(default_factory=Event)
    _slots: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(MOST_CALLS))

    # ---- calls

    @asynccontextmanager
    async def call(self, request: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._slots:
            transcript = await to_thread.run_sync(self.read_transcript, self.transcribed)
            self.transcribed += len(transcript)
            number, self._asked, self.called = self._asked, self._asked + 1, True
            self._open[number] = answer = _Answer(Asked(number, request, transcript))
            self.change()
            try:
                yield answer.read()
            finally:
                del self._open[number]
                self.change()

    def take(self, number: int, at: int, part: bytes, *, last: bool) -> None:
        """Take a part of an answer. Raises `FrameError`."""
        if number >= self._asked:
            raise FrameError("an answer to an unknown call")
        if (answer := self._open.get(number)) is not None:
            answer.take(at, part, last=last)

    def signs(self, sent: set[int], read: int) -> list[Sign]:
        """Return the signs that a follower lacks, given the calls and the instruction count it already has."""
        asked: list[Sign] = [answer.asked for number, answer in self._open.items() if number not in sent]
        dropped: list[Sign] = [Dropped(number) for number in sorted(sent - self._open.keys())]
        news: list[Sign] = [InstructionsRead(self._read)] if self._read > read else []
        return [*dropped, *news, *asked]

    def change(self) -> None:
        """Wake the followers."""
        self.changed.set()
        self.changed = Event()

    # ---- the operator

    def hear(self, number: int, instruction: Instruction) -> None:
        """Add an instruction by number; known instructions are ignored. Raises `FrameError`."""
        if number > len(self.instructions) or number >= MOST_INSTRUCTIONS:
            raise FrameError("an instruction is missing, or there are too many")
        if number == len(self.instructions):
            self.instructions.append(instruction)
            self._told.set()
            self._told = Event()

    async def read(self) -> Sequence[Instruction]:
        unread = self.unread
        if unread:
            self._read = len(self.instructions)
            self.change()
        return unread

    def told(self, since: int = 0) -> Sequence[Instruction]:
        return self.instructions[since:]

    async def mark_read(self, count: int) -> None:
        self._read = max(self._read, min(count, len(self.instructions)))

    async def wait_told(self, count: int) -> None:
        while len(self.instructions) <= count:
            await self._told.wait()
