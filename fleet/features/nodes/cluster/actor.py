"""One machine of a Ray cluster: forwards bytes between a manager and `fleet node --stdio`, a process per connection.

Ray imports this from the fleet installed on the machine, so no code is transferred. If Ray can't tell whether a call
arrived, the call is repeated. Sends and receives are numbered, so each takes effect once. A node without a manager
exits when its work is done or its lease expires.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import PIPE
from tempfile import TemporaryFile
from time import monotonic
from typing import IO

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, Lock, open_process, sleep
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

CHUNK = 64 * 1024  # below 100 kB, Ray returns a result with the answer to its call
KEPT = 2_000  # bytes of stderr
NODE = (sys.executable, "-P", "-m", "fleet", "node", "--stdio")


@dataclass(slots=True)
class _Stream:
    """The process behind one connection."""

    process: Process
    input: ByteSendStream
    output: ByteReceiveStream
    errors: IO[bytes]
    used: float
    """When the manager last used it, on this machine's clock."""
    taken: int = 0
    """The number of the last chunk passed to it."""
    given: int = 0
    """The number of the last chunk it sent, which is kept until the next one is requested."""
    bytes: bytes = field(default=b"", repr=False)
    sending: Lock = field(default_factory=Lock)
    receiving: Lock = field(default_factory=Lock)


class HostActor:
    """The single Ray actor of a machine. It exits after a period without nodes."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._streams: dict[str, _Stream] = {}
        self._used = monotonic()

    async def open(self, id_: str, command: Sequence[str]) -> str:
        """Start a node for a connection. Returns an error message, or an empty string."""
        self._used = monotonic()
        if id_ in self._streams:
            return ""
        env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        errors = TemporaryFile()  # noqa: SIM115 - closed with the connection
        try:
            process = await open_process(
                list(command or NODE), stdin=PIPE, stdout=PIPE, stderr=errors, env=env, start_new_session=True
            )
        except OSError as error:
            errors.close()
            return str(error)
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the process was started without pipes")
        self._streams[id_] = _Stream(process, process.stdin, process.stdout, errors, monotonic())
        return ""

    async def send(self, id_: str, number: int, data: bytes) -> bool:
        """Forward bytes to the node. Returns whether it still accepts input."""
        if (stream := self._streams.get(id_)) is None:
            return False
        async with stream.sending:
            stream.used = monotonic()
            if number > stream.taken:
                try:
                    await stream.input.send(data)
                except (BrokenResourceError, ClosedResourceError):
                    return False
                stream.taken = number
        return True

    async def receive(self, id_: str, number: int) -> bytes:
        """Wait for the next bytes. The result is empty if the node has closed its stream."""
        if (stream := self._streams.get(id_)) is None:
            return b""
        async with stream.receiving:
            stream.used = monotonic()
            if number > stream.given:
                received = b""
                with suppress(EndOfStream, BrokenResourceError, ClosedResourceError):
                    received = await stream.output.receive(CHUNK)
                stream.bytes, stream.given = received, number
            return stream.bytes

    async def close(self, id_: str) -> str:
        """Close the node's stdin. Returns the end of its stderr."""
        if (stream := self._streams.get(id_)) is None:
            return ""
        self._used = stream.used = monotonic()
        await self._close(stream)
        return _tail(stream.errors)

    async def leave_when_idle(self) -> None:
        """Return after a period without nodes."""
        while self._streams or monotonic() < self._used + self._idle_s:
            await sleep(self._idle_s / 10)
            for id_, stream in list(self._streams.items()):
                if stream.process.returncode is not None and monotonic() > stream.used + self._idle_s:
                    del self._streams[id_]
                    await self._close(stream)
                    stream.errors.close()

    async def _close(self, stream: _Stream) -> None:
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            await stream.input.aclose()


def _tail(errors: IO[bytes]) -> str:
    size = os.fstat(errors.fileno()).st_size
    return os.pread(errors.fileno(), KEPT, max(size - KEPT, 0)).decode("utf-8", "replace")
