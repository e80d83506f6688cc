"""A whole conversation, byte by byte: what both ends send is what docs/reference/node-protocol.md shows."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyio import create_task_group

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.features.nodes.connection import greet
from fleet.features.nodes.messages import Decoder, Open
from fleet.features.nodes.serve import serve
from fleet.features.nodes.transport import ByteStream, FdStream, Link
from fleet.ports.agents import Asked
from fleet.ports.orders import WorktreeReady
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import GREETING, OPEN, ScriptedSite, attempt, wire

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "node-protocol.md"
KEY = "r/attempt/asks/1"


@dataclass
class Recorded:
    """A stream whose frames are written down."""

    stream: FdStream
    arrow: str
    lines: list[str]
    decoder: Decoder = field(default_factory=Decoder)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self.stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        for frame in self.decoder.feed(item):
            parts = "".join(f" +{len(part)}" for part in frame.parts)
            if frame.header["type"] != "beat":  # they come when they come
                self.lines.append(f"{self.arrow} {json.dumps(frame.header)}{parts}")
        await self.stream.send(item)


async def conversation(site: ScriptedSite) -> list[str]:
    """An order from greeting to acknowledgement, each message as a line, in the order they were sent."""
    lines: list[str] = []

    @asynccontextmanager
    async def open_site(opening: Open, terms: bytes) -> AsyncIterator[ScriptedSite]:
        assert (opening, terms) == (OPEN, b"{}")
        yield site

    async def parts() -> AsyncIterator[bytes]:
        yield b"PACK"
        yield b"rest"

    with wire() as ends:
        manager: ByteStream = Recorded(ends.manager, "→", lines)
        node: ByteStream = Recorded(ends.node, "←", lines)
        async with create_task_group() as tasks:
            tasks.start_soon(serve, Link(node), GREETING, open_site)
            connection = await greet(Link(manager), OPEN, b"{}", within_s=10)
            tasks.start_soon(connection.run)
            await connection.store(Sha("e" * 40), parts())
            await connection.start(KEY, attempt("asks"))
            await wait_until(lambda: any(line.called for line in site.node.lines))
            async with aclosing(connection.follow(KEY)) as events:
                assert isinstance(await anext(events), Asked)
                assert await anext(events) == WorktreeReady()
                await connection.instruct(KEY, 0, Instruction("be quick", "ada", 1.0))
                await connection.answer(KEY, 0, 0, b"an answer", last=False)
                await connection.answer(KEY, 0, 1, b"", last=True)
                assert len([event async for event in events]) == 3
            await connection.acknowledge(KEY)
            tasks.cancel_scope.cancel()
    assert site.stored == [("e" * 40, b"PACKrest")]
    return lines


async def test_the_conversation_is_the_one_that_the_reference_shows(site: ScriptedSite) -> None:
    [shown] = re.findall(r"```text\n(→.*?|←.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown.splitlines() == await conversation(site)
