"""One attempt's way to its manager, on the node: calls to models go out by it, the operator's words come in.

It outlives the link: what was asked and not answered is asked again over the next one, under the same number, so that
the manager makes no call twice.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from anyio import CapacityLimiter, Event, to_thread

from fleet.core.state.subtasks import Instruction
from fleet.nodes.frames import FrameError
from fleet.ports.agents import LONGEST_ANSWER, LONGEST_REQUEST, MOST_CALLS, Asked, Dropped, InstructionsRead, Sign
from fleet.ports.operator import HeardOperator

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
class Line(HeardOperator):
    """Satisfies `CallLine`, and `Operator` with what the manager passes on."""

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


# ---- deltas ----------------------------------------------------------------------------------------------------------
# Requests of one conversation grow at their end: what a request shares with the one before it does not travel again.
#
# Both ends remember the last request of each order on their connection, in the order in which they are sent.


@dataclass(slots=True)
class Shortened:
    """The node's end."""

    _last: dict[str, bytes] = field(default_factory=dict)

    def shortened(self, key: str, request: bytes) -> tuple[int, bytes]:
        """How many bytes the request shares with the one before, and the others."""
        same = _common(self._last.get(key, b""), request)
        self._last[key] = request
        return same, request[same:]

    def forget(self, key: str) -> None:
        self._last.pop(key, None)


@dataclass(slots=True)
class Restored:
    """The manager's end."""

    _last: dict[str, bytes] = field(default_factory=dict)

    def restored(self, key: str, same: int, rest: bytes) -> bytes:
        """The whole request. Raises `FrameError`."""
        last = self._last.get(key, b"")
        if same > len(last) or same + len(rest) > LONGEST_REQUEST:
            raise FrameError(f"a request of {same} bytes that are known, of {len(last)}, and {len(rest)} more")
        request = self._last[key] = last[:same] + rest
        return request

    def forget(self, key: str) -> None:
        self._last.pop(key, None)


def _common(first: bytes, second: bytes) -> int:
    """The length of the longest common beginning. Compares halves, because that is done without a loop per byte."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
