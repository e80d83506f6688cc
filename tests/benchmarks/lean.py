"""A server that costs next to nothing: the same streamed tool call to whoever asks, after a while.

    python -m tests.benchmarks.lean [SECONDS]

What is measured is the caller, on a machine with two cores. It labels each response as the simulated model does.
"""

import asyncio
import json
import sys
from random import Random
from typing import Any

from agents.simulated.cache import PromptTokens
from agents.simulated.moves import Say, Text, ToolUse
from agents.simulated.wire import Envelope, events

TEXT = "I look at the next file, and go on from there. " * 4
SAY = Say((Text(TEXT), ToolUse("toolu_1", "look", {"path": "src/part0/folder1/module2.py", "lines": "1-200"})))
BODY = b"".join(events(SAY, Envelope("msg_simulated_1", "claude-haiku-5-5", PromptTokens(500, 0, 4000))))
HEAD = (
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-simulated-model: fleet\r\nrequest-id: req_simulated_1\r\n"
    f"content-length: {len(BODY)}\r\n\r\n"
)
RESPONSE = HEAD.encode() + BODY


class Lean(asyncio.Protocol):
    """Counts the bytes of requests, reads none of them."""

    def __init__(self, think_s: float, chance: Random) -> None:
        self._think_s = think_s
        self._chance = chance
        self._transport: Any = None
        self._head = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            head, found, rest = (self._head + data).partition(b"\r\n\r\n")
            if not found:
                self._head = head
                return
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self._head, self._left, data = b"", int(length.partition(b":")[2]), rest
        self._left -= len(data)
        if not self._left:
            if self._think_s:
                wait = self._think_s * self._chance.uniform(0.5, 1.5)
                asyncio.get_running_loop().call_later(wait, self._transport.write, RESPONSE)
            else:
                self._transport.write(RESPONSE)


async def serve(think_s: float) -> None:
    chance = Random(1)  # noqa: S311 - a pace
    server = await asyncio.get_running_loop().create_server(lambda: Lean(think_s, chance), "127.0.0.1", 0, backlog=4096)
    host, port = server.sockets[0].getsockname()
    sys.stdout.write(json.dumps(f"http://{host}:{port}") + "\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
