"""The far end of a dialogue with a program, for tests."""

import json
import socket
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import UNIXSocketStream

from fleet.ports.agents import Dialogue


async def converse(dialogue: Dialogue, *lines: str) -> list[dict[str, Any]]:
    """Say these lines, end, and return what was said to the program."""
    ours, theirs = socket.socketpair()
    heard = b""

    async def speak(stream: UNIXSocketStream) -> None:
        async with stream:
            await dialogue(stream)

    async with anyio.create_task_group() as tasks, await UNIXSocketStream.from_socket(theirs) as far:
        tasks.start_soon(speak, await UNIXSocketStream.from_socket(ours))
        with suppress(anyio.BrokenResourceError):
            heard += await far.receive()
            for line in lines:
                await far.send(f"{line}\n".encode())
            await far.send_eof()
            async for chunk in far:
                heard += chunk
    return [json.loads(line) for line in heard.splitlines()]
