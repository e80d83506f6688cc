"""A service whose answers unpack to more than any memory: counted after unpacking, within the limits on time."""

import gzip
import json
import resource
import socket
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import web

from agents.models import claude, client
from agents.models.answer import Answer
from agents.models.client import is_simulated
from agents.models.exchange import WireError
from tests.agents.conftest import Reply, Script, client_for, events, text
from tests.agents.models.wire.test_client import ask, fault

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024


def bomb(*, status: int, kind: str, unpacked: int = 300 * MIB) -> Reply:
    """A line that unpacks to this many bytes."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = [packer.compress(b"data: "), *(packer.compress(b" " * MIB) for _ in range(unpacked // MIB))]
    body = b"".join([*packed, packer.flush()])

    async def reply(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"content-encoding": "gzip", "content-type": kind})

    return reply


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_an_answer_that_unpacks_to_too_much_is_a_fault_in_bounded_memory(
    model: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude, "LONGEST", 8 * MIB)
    reply = bomb(status=200, kind="text/event-stream")
    before = peak()
    result = await fault(model, reply, silence_s=60, call_s=60)
    assert result.kind == "outage"
    assert "longer than" in result.message
    assert peak() - before < 150 * MIB  # of the 300 that it unpacks to


async def test_the_body_of_an_error_is_cut_and_its_status_counts(model: Script) -> None:
    reply = bomb(status=400, kind="application/json")
    before = peak()
    result = await fault(model, reply, silence_s=60, call_s=60)
    assert (result.kind, result.status) == ("configuration", 400)
    assert peak() - before < 150 * MIB


async def test_limits_on_time_hold_while_an_answer_is_unpacked(model: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude, "LONGEST", 10**15)
    monkeypatch.setattr(claude, "PIECE", 512)
    monkeypatch.setattr("agents.models.exchange.LONGEST_LINE", 10**15)
    result = await fault(
        model, bomb(status=200, kind="text/event-stream", unpacked=100 * MIB), silence_s=0.3, call_s=60
    )
    assert result.message == "no content for 0.3 s"


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


async def test_a_probe_whose_headers_drip_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PROBE_S", 0.3)
    async with host(first=b"HTTP/1.1 200 OK\r\n", then=b"x", pause_s=0.02) as url:
        assert not await is_simulated(url)


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
