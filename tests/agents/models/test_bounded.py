"""A service whose answers unpack to more than any memory: counted after unpacking, within the limits on time."""

import gzip
import json
import resource
import socket
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from aiohttp import web

from agents.models import client
from agents.models.answer import Answer
from agents.models.claude import LONGEST, PIECE, BoundedStream
from agents.models.client import is_simulated
from agents.models.exchange import WireError
from tests.agents.conftest import Reply, Script, client_for, events, text
from tests.agents.models.test_client import ask, fault

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024


def packed(line: bytes, times: int) -> bytes:
    """This line, so many times."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return b"".join([*(packer.compress(line) for _ in range(times)), packer.flush()])


def bomb(*, status: int, kind: str) -> Reply:
    """An answer of 300 megabytes, all of them comments."""
    body = packed(b":" + b" " * (MIB - 2) + b"\n", 300)

    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"content-encoding": "gzip", "content-type": kind})

    return reply


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_an_answer_that_unpacks_to_too_much_is_a_fault_in_bounded_memory(model: Script) -> None:
    reply = bomb(status=200, kind="text/event-stream")
    before = peak()
    result = await fault(model, reply, silence_s=60, call_s=60)
    assert result.kind == "outage"
    assert f"longer than {LONGEST} bytes" in result.message
    assert peak() - before < 150 * MIB  # of the 300 that it unpacks to


async def test_the_body_of_an_error_is_cut_and_its_status_counts(model: Script) -> None:
    reply = bomb(status=400, kind="application/json")
    before = peak()
    result = await fault(model, reply, silence_s=60, call_s=60)
    assert (result.kind, result.status) == ("configuration", 400)
    assert peak() - before < 150 * MIB


class Once(httpx2.AsyncByteStream):
    """A body that comes in one chunk."""

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._chunk


async def test_limits_on_time_hold_while_an_answer_is_unpacked() -> None:
    pieces = list[bytes]()
    with anyio.CancelScope() as limit:
        async for piece in BoundedStream(Once(packed(b" " * MIB, 50)), "gzip", is_error=False):
            pieces.append(piece)
            limit.cancel()
    assert limit.cancelled_caught
    assert [len(piece) for piece in pieces] == [PIECE]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP "])
async def test_an_honest_answer_may_be_packed(model: Script, encoding: str) -> None:
    lines = [f"data: {json.dumps(event)}\n\n" for _, event in events((text("Hello"),))]
    plain = "".join(lines).encode()
    packed = zlib.compress(plain) if encoding == "deflate" else gzip.compress(plain)

    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=packed, headers={"content-encoding": encoding, "content-type": "text/event-stream"})

    result = await ask(model, reply)
    assert isinstance(result, Answer)
    assert result.text == "Hello"
    assert model.headers[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip", b"not packed at all")])
async def test_an_answer_that_can_not_be_unpacked_is_a_fault(model: Script, encoding: str, body: bytes) -> None:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"content-encoding": encoding, "content-type": "text/event-stream"})

    assert (await fault(model, reply)).kind == "outage"


async def test_what_is_passed_on_for_others_has_a_limit_on_time_too(model: Script) -> None:
    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await anyio.sleep(0.02)

    model.will(drips)

    async def read_all(opened: client.Client) -> None:
        async with opened.forward("/v1/messages", b"{}", {}) as answer:
            async for _ in answer.chunks:
                pass

    async with client_for(model, call_s=0.3) as opened:
        with pytest.raises(WireError, match="not finished"):
            await read_all(opened)


# ---- the probe -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def host(*, first: bytes, then: bytes, pause_s: float) -> AsyncIterator[str]:
    """A service that sends something, and then the same again and again."""

    async def serve(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            try:
                await connection.send(first)
                while True:
                    await connection.send(then)
                    await anyio.sleep(pause_s)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    address = listener.extra(anyio.abc.SocketAttribute.local_address)  # noqa: S610 - not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{address[1]}"
        tasks.cancel_scope.cancel()


async def test_a_probe_whose_headers_drip_ends() -> None:
    async with host(first=b"HTTP/1.1 200 OK\r\n", then=b"x", pause_s=0.02) as url:
        assert not await is_simulated(url, limit_s=0.3)


async def test_a_probe_reads_headers_only() -> None:
    head = b"HTTP/1.1 200 OK\r\nX-Simulated-Model: yes\r\n\r\n"
    async with host(first=head, then=b"x" * MIB, pause_s=0) as url:
        assert await is_simulated(url)
    async with host(first=b"HTTP/1.1 200 OK\r\n", then=b"x" * MIB, pause_s=0) as url:
        assert not await is_simulated(url)


async def test_a_probe_where_nothing_listens_is_no() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not await is_simulated(f"http://127.0.0.1:{free.getsockname()[1]}")
