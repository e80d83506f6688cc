"""Frames over streams of bytes: both ends of the protocol send and receive through a `Link`."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, Lock

from fleet.nodes.frames import Decoder, Frame, encode
from fleet.nodes.messages import Message, to_frame


class LinkLostError(Exception):
    """The stream ended, or the other side does not keep to the protocol."""


class ByteStream(Protocol):
    """A stream of bytes in both directions, as anyio has them."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Raises `EndOfStream`."""
        ...

    async def send(self, item: bytes) -> None: ...


@dataclass(slots=True)
class Link:
    """One end of the protocol. Messages are sent one at a time, in whole frames."""

    stream: ByteStream
    received: int = 0
    sent: int = 0
    _decoder: Decoder = field(default_factory=Decoder)
    _sending: Lock = field(default_factory=Lock)

    async def send(self, message: Message, *parts: bytes) -> None:
        """Raises `LinkLostError` where the stream has ended, and `FrameError` for a message that is too long."""
        data = encode(to_frame(message, *parts))
        try:
            async with self._sending:
                await self.stream.send(data)
        except (BrokenResourceError, ClosedResourceError, OSError) as error:
            raise LinkLostError("the stream has ended") from error
        self.sent += len(data)

    async def frames(self) -> AsyncIterator[Frame]:
        """What the other side sends, until it closes the stream. Raises `LinkLostError` or `FrameError`."""
        while True:
            try:
                data = await self.stream.receive()
            except EndOfStream:
                if not self._decoder.is_between_frames:
                    raise LinkLostError("the stream ended in the middle of a message") from None
                return
            except (BrokenResourceError, ClosedResourceError, OSError) as error:
                raise LinkLostError("the stream has ended") from error
            self.received += len(data)
            for frame in self._decoder.feed(data):
                yield frame
