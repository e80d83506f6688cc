"""The standard input and output of this process as a stream. What others print goes to the error output instead."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anyio import BrokenResourceError, EndOfStream, wait_readable, wait_writable

CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class FdStream:
    """Satisfies `ByteStream` with two descriptors."""

    source: int
    sink: int

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        while True:
            await wait_readable(self.source)
            try:
                data = os.read(self.source, max_bytes)
            except BlockingIOError:
                continue
            except OSError as error:
                raise BrokenResourceError from error
            if not data:
                raise EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            await wait_writable(self.sink)
            try:
                rest = rest[os.write(self.sink, rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise BrokenResourceError from error


@contextmanager
def standard_streams() -> Iterator[FdStream]:
    """The streams that this process was started with. From then on `print` writes to the error output."""
    source, sink = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(empty, 0)
        os.dup2(2, 1)
        sys.stdout.flush()
        for fd in (source, sink):
            os.set_blocking(fd, False)
            os.set_inheritable(fd, False)
        yield FdStream(source, sink)
    finally:
        for fd in (source, sink, empty):
            os.close(fd)
