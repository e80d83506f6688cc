"""The manager's end of an attempt's line: makes the calls that it asks for, and passes on what the operator tells it.

A desk lives as long as its attempt, over any number of connections. A call has a number and is made once: whoever asks
again, because a link broke, gets the answer that was made or is being made. What the node sends is untrusted.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from anyio import CancelScope, Event, current_time
from anyio.abc import TaskGroup

from fleet.nodes.transport import LinkLostError
from fleet.ports.agents import MOST_CALLS, Asked, AttemptCalls, CallRefusedError, Dropped, InstructionsRead, Sign
from fleet.ports.nodes import NodeHost
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

    async def wait_dropped(self) -> None:
        await self.dropped.wait()

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
                self._asked(number, sign)
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

    def _asked(self, number: int, asked: Asked) -> None:
        reply = self._replies.get(number)
        if reply is None:
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
        if self.host is not None:
            self.tasks.start_soon(self._deliver, self.host, number, reply)

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
