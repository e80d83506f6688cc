"""The bodies of a service's answers, counted after they are unpacked: a small one may unpack to more than the memory.

A hook of the HTTP client. It unpacks itself, a piece at a time, so that no more than a piece is in memory and every
limit on time is looked at in between.
"""

import zlib
from collections.abc import AsyncIterator

import httpx2
from anyio.lowlevel import checkpoint

LONGEST = 100_000_000  # bytes of an answer: several times what the longest one takes with an event for each word
LONGEST_ERROR = 1_000_000  # bytes of the body of an error; the rest is left out
PIECE = 64 * 1024
_EITHER = 32 + zlib.MAX_WBITS  # zlib looks which of the two it is
UNPACKED = {"gzip": _EITHER, "x-gzip": _EITHER, "deflate": _EITHER}
"""The encodings that are understood; others are refused."""


async def bound(response: httpx2.Response) -> None:
    """Have the body of a response counted as it is read."""
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    response.headers.pop("content-length", None)
    stream = response.stream
    if not isinstance(stream, httpx2.AsyncByteStream):
        raise httpx2.StreamError("the answer can't be read as a stream")
    response.stream = BoundedStream(stream, encoding, is_error=not response.is_success)


class BoundedStream(httpx2.AsyncByteStream):
    """The unpacked body. Raises `httpx2.DecodingError` where it is too long, or packed in a way that is not known."""

    def __init__(self, packed: httpx2.AsyncByteStream, encoding: str, *, is_error: bool) -> None:
        self._packed = packed
        self._encoding = encoding
        self._is_error = is_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, limit = 0, LONGEST_ERROR if self._is_error else LONGEST
        async for piece in self._unpacked():
            size += len(piece)
            if size > limit and self._is_error:
                return
            if size > limit:
                raise httpx2.DecodingError(f"the answer is longer than {limit} bytes")
            yield piece

    async def _unpacked(self) -> AsyncIterator[bytes]:
        if self._encoding in {"", "identity"}:
            async for chunk in self._packed:
                yield chunk
            return
        if self._encoding not in UNPACKED:
            raise httpx2.DecodingError(f"the answer is packed with {self._encoding!r}, which was not asked for")
        unpack = zlib.decompressobj(UNPACKED[self._encoding])
        async for chunk in self._packed:
            rest = chunk
            while rest:
                try:
                    piece = unpack.decompress(rest, PIECE)
                except zlib.error as error:
                    raise httpx2.DecodingError(f"the answer can't be unpacked: {error}") from error
                await checkpoint()  # limits on time hold while a small answer becomes a long one
                if piece:
                    yield piece
                rest = unpack.unconsumed_tail

    async def aclose(self) -> None:
        await self._packed.aclose()
