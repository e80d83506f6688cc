"""The manager's end of an agent in its box: lines to it and from it, and requests to the program beside it.

Everything that arrives here was written in the box: frames have a length, and what is no frame ends the session.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import ByteStream

from agents.acp.host import ASK, HEADER, LINE, NEWS, REPLY
from fleet.core.base.json_text import parse_json

LONGEST_FRAME = 16 * 1024 * 1024  # bytes: a file of 2 MiB, each byte of it escaped


class LinkError(Exception):
    """What came from the box is not what the program there sends."""


class ServingError(Exception):
    """A file or a terminal was refused; the agent reads why."""


@dataclass(slots=True)
class Link:
    """One stream with the program in the box."""

    stream: ByteStream
    _asked: int = 0
    _waiting: dict[int, tuple[anyio.Event, list[Mapping[str, Any]]]] = field(default_factory=dict)
    _sending: anyio.Lock = field(default_factory=anyio.Lock)

    async def send(self, line: bytes) -> None:
        """Send the agent a line. Nothing is said when it is gone: the end is read, not written."""
        await self._send(LINE, line)

    async def ask(self, do: str, **given: Any) -> Any:
        """Have the program in the box do something for the agent. Raises `ServingError`."""
        self._asked += 1
        number, answered = self._asked, anyio.Event()
        replies: list[Mapping[str, Any]] = []
        self._waiting[number] = answered, replies
        try:
            await self._send(ASK, json.dumps({"id": number, "do": do, **given}, ensure_ascii=True).encode())
            await answered.wait()
        finally:
            del self._waiting[number]
        if "result" in replies[0]:
            return replies[0]["result"]
        raise ServingError(str(replies[0].get("refused"))[:500])

    async def events(self) -> AsyncIterator[bytes | Mapping[str, Any]]:
        """The lines of the agent, and news of it. Raises `LinkError`."""
        buffer = bytearray()
        async for chunk in self.stream:
            buffer += chunk
            while len(buffer) >= HEADER.size:
                kind, length = HEADER.unpack_from(buffer)
                if length > LONGEST_FRAME or kind not in {LINE, REPLY, NEWS}:
                    raise LinkError(f"a frame of {length} bytes of the kind {kind!r}")
                if len(buffer) < HEADER.size + length:
                    break
                payload = bytes(buffer[HEADER.size : HEADER.size + length])
                del buffer[: HEADER.size + length]
                if kind == LINE:
                    yield payload
                elif kind == NEWS:
                    yield _document(payload)
                else:
                    self._take(_document(payload))

    def _take(self, reply: Mapping[str, Any]) -> None:
        number = reply.get("id")
        if isinstance(number, int) and number in self._waiting:
            answered, replies = self._waiting[number]
            replies.append(reply)
            answered.set()

    async def _send(self, kind: bytes, payload: bytes) -> None:
        async with self._sending:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self.stream.send(HEADER.pack(kind, len(payload)) + payload)


def _document(payload: bytes) -> Mapping[str, Any]:
    try:
        document = parse_json(payload)
    except ValueError as error:
        raise LinkError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise LinkError("no JSON object")
    return document
