"""The manager's end of an attempt's line: makes the calls that it asks for, and passes on what the operator tells it.

A desk lives as long as its attempt, over any number of connections. A call has a number and is made once: whoever asks
again, because a link broke, gets the answer that was made or is being made. What the node sends is untrusted.
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
# How long an order may be silent: a node that gives signs of life may still never finish what it was given.


@dataclass(slots=True)
class Patience:
    """Cancels what happens in its block once nothing was heard for so long. Waiting for us does not count."""

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
        """Something came from the node."""
        if not self._rests:
            self.scope.deadline = current_time() + self.seconds

    def rest(self) -> None:
        """The node waits for us."""
        self._rests, self.scope.deadline = True, math.inf

    def go_on(self) -> None:
        """It has what it waited for."""
        self._rests = False
        self.heard()

    @property
    def is_over(self) -> bool:
        return self.scope.cancelled_caught

    @property
    def why(self) -> str:
        """Why there is no report."""
        return f"nothing was heard of an order for {self.seconds:.0f} s" if self.is_over else "its report never came"


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
        """The last part is an empty one."""
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
class Desk:
    """Serves one attempt. Its tasks end with `tasks`."""

    key: str
    calls: AttemptCalls
    operator: Operator
    tasks: TaskGroup
    patience: Patience = field(default_factory=Patience)
    """With the node; while it waits for an answer, it need not be heard."""
    host: NodeHost | None = None
    """The connection over which the attempt is followed."""
    _next: int = 0
    """Calls with a smaller number were asked for."""
    _replies: dict[int, CallReply] = field(default_factory=dict)
    _making: int = 0
    _idle: Event = field(default_factory=Event)
    _telling: CancelScope = field(default_factory=CancelScope)

    def attach(self, host: NodeHost) -> None:
        """Go on over a connection: the node asks again for what it lacks."""
        self._telling.cancel()
        self.host, self._telling = host, CancelScope()
        self.tasks.start_soon(self._instruct, host, self._telling)

    @property
    def has_made_calls(self) -> bool:
        return self._next > 0

    async def take(self, sign: Sign) -> None:
        """Raises `CallRefusedError`."""
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
                    raise CallRefusedError("it has read an instruction that no one gave")
                await self.operator.mark_read(count)

    async def wait_idle(self) -> None:
        """Return once no call is under way."""
        while self._making:
            await self._idle.wait()

    def _begin(self, number: int, asked: Asked) -> CallReply:
        """Begin a call that was not asked for before."""
        if number < self._next:
            raise CallRefusedError("it asks for an answer that it had")
        if len(self._replies) >= MOST_CALLS:
            raise CallRefusedError(f"it asks for more than {MOST_CALLS} calls at a time")
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
        with suppress(LinkLostError):  # the node asks again
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
# One attempt's way to its manager, on the node: calls to models go out by it, the operator's words come in.
#
# It outlives the link: what was asked and not answered is asked again over the next one, under the same number, so
# that the manager makes no call twice.


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
        """The next part; one that is there already is left out. Raises `FrameError`."""
        if at < len(self.parts) or self.complete:
            return
        self.size += len(part)
        if at > len(self.parts) or self.size > LONGEST_ANSWER:
            raise FrameError("an answer to a call has a gap" if at > len(self.parts) else "an answer is too long")
        self.parts.append(part)
        self.complete = last
        self.changed.set()
        self.changed = Event()

    async def read(self) -> AsyncIterator[bytes]:
        at = 0
        while True:
            changed = self.changed
            while at < len(self.parts):
                part, self.parts[at] = self.parts[at], b""  # it is read once
                at += 1
                yield part
            if self.complete:
                return
            await changed.wait()


@dataclass(slots=True)
class Line(Operator):
    """Satisfies `CallLine`, and is the operator with what the manager passes on."""

    read_transcript: Callable[[int], bytes] = lambda _: b""
    """The attempt's transcript from a byte on."""
    instructions: list[Instruction] = field(default_factory=list)
    changed: Event = field(default_factory=Event)
    """Set, and replaced, when there is something for those who follow."""
    called: bool = False
    """Whether a call was asked for."""
    transcribed: int = 0
    """Bytes of the transcript that went out with calls."""
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
        """A part of an answer. Raises `FrameError`."""
        if number >= self._asked:
            raise FrameError("an answer to a call that was not asked for")
        if (answer := self._open.get(number)) is not None:
            answer.take(at, part, last=last)

    def signs(self, sent: set[int], read: int) -> list[Sign]:
        """What a follower does not know yet, who was sent these calls and knows of so many instructions read."""
        asked: list[Sign] = [answer.asked for number, answer in self._open.items() if number not in sent]
        dropped: list[Sign] = [Dropped(number) for number in sorted(sent - self._open.keys())]
        news: list[Sign] = [InstructionsRead(self._read)] if self._read > read else []
        return [*dropped, *news, *asked]

    def change(self) -> None:
        """Wake those who follow."""
        self.changed.set()
        self.changed = Event()

    # ---- the operator

    def hear(self, number: int, instruction: Instruction) -> None:
        """An instruction by its number; one that is known already is left out. Raises `FrameError`."""
        if number > len(self.instructions) or number >= MOST_INSTRUCTIONS:
            raise FrameError("an instruction of the operator is missing, or there are too many")
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
