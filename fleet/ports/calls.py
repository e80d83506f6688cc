"""What an attempt on a node and its manager exchange while it works: calls to models, and words of the operator.

A node holds no key. What it asks for and what it gets are bytes that only both ends of the agents understand; whoever
carries them sees to it that a call is made once, however often the link between them breaks.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

LONGEST_REQUEST = 32 * 1024 * 1024
LONGEST_ANSWER = 64 * 1024 * 1024
MOST_CALLS = 8
"""Calls of one attempt at a time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The attempt asks for a call. Repeated to whoever follows it, until it has the answer."""

    number: int
    request: bytes = field(repr=False)
    transcript: bytes = field(default=b"", repr=False)
    """What was added to its transcript since the call before."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The attempt has the whole answer to a call, or does not want it any more."""

    number: int


@dataclass(frozen=True, slots=True)
class InstructionsRead:
    """The next request of the attempt holds so many of the operator's instructions."""

    count: int


Sign = Asked | Dropped | InstructionsRead


class CallRefusedError(Exception):
    """A call that the order does not allow: an honest node never asks for it. The message says what is wrong."""


class CallLine(Protocol):
    """The way from an attempt on a node to its manager, which makes the calls."""

    def call(self, request: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Ask for a call; inside the block, the parts of its answer. Whoever leaves early does not want the rest."""
        ...


class Reply(Protocol):
    """Where the answer to one call goes."""

    @property
    def is_dropped(self) -> bool:
        """Whether the attempt does not want it any more."""
        ...

    async def send(self, part: bytes) -> None: ...

    async def wait_dropped(self) -> None: ...


class AttemptCalls(Protocol):
    """The manager's end: the calls of one attempt that is made on a node. What the node sends is untrusted."""

    @property
    def drained(self) -> bool:
        """Whether a call was not made because the run is draining and it would have had to wait."""
        ...

    async def answer(self, request: bytes, reply: Reply) -> None:
        """Make a call and pass its answer on. Raises `CallRefusedError`."""
        ...

    def keep(self, transcript: bytes) -> None:
        """Add to the transcript of the attempt."""
        ...

    def close(self) -> None:
        """Interrupt the call under way: the attempt is over. What it has used is charged."""
        ...
