"""JSON-RPC with an agent that may send anything: what is no message is counted, and too much of anything is an end."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from fleet.core.base.output import parse_json

MOST_GARBAGE = 200  # lines that are no message: some agents print there what belongs into a log
MOST_MESSAGES = 200_000
MOST_AT_ONCE = 64  # requests of the agent that wait for their answer
MOST_BYTES = 512 * 1024 * 1024  # in one session
INVALID, UNKNOWN, BUSY = -32602, -32601, -32000
_LONGEST_ID = 200


class EndError(Exception):
    """The session can't continue; the message says why."""


class RefusalError(Exception):
    """A request of the agent is answered with an error."""

    def __init__(self, message: str, code: int = INVALID) -> None:
        super().__init__(message)
        self.code = code


class RpcError(Exception):
    """The agent answered a request of ours with an error."""

    def __init__(self, method: str, error: object) -> None:
        known = error if isinstance(error, dict) else {}
        self.code = known.get("code")
        details = f" ({json.dumps(known['data'])[:500]})" if known.get("data") else ""
        super().__init__(f"{method}: {str(known.get('message', error))[:500]}{details}")


Answer = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Notice = Callable[[str, Mapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class Rpc:
    """One end of a connection."""

    send_line: Callable[[bytes], Awaitable[None]]
    answer: Answer
    """Raises `RefusalError`."""
    notice: Notice
    tasks: TaskGroup
    garbage: int = 0
    messages: int = 0
    received: int = 0
    at_once: int = 0
    closed: bool = False
    _asked: int = 0
    _waiting: dict[int, tuple[anyio.Event, list[Mapping[str, Any]]]] = field(default_factory=dict)

    async def call(
        self, method: str, params: Mapping[str, Any], *, sent: anyio.Event | None = None
    ) -> Mapping[str, Any]:
        """Ask the agent something, and set the event once it is `sent`. Raises `RpcError`."""
        self._asked += 1
        number, answered = self._asked, anyio.Event()
        replies: list[Mapping[str, Any]] = []
        self._waiting[number] = answered, replies
        if self.closed:
            self.close()
        try:
            await self._send(id=number, method=method, params=params)
            if sent is not None:
                sent.set()
            await answered.wait()
        finally:
            del self._waiting[number]
        result = replies[0].get("result")
        if "error" in replies[0] or not isinstance(result, dict):
            raise RpcError(method, replies[0].get("error", "its answer is no object"))
        return result

    def close(self) -> None:
        """The agent has ended: what it was asked has no answer."""
        self.closed = True
        for answered, replies in self._waiting.values():
            replies.append({"error": {"message": "the agent has ended"}})
            answered.set()

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send(method=method, params=params)

    async def take(self, line: bytes) -> None:
        """One line of the agent. Raises `EndError` once there is too much of anything."""
        self.messages += 1
        self.received += len(line)
        if self.messages > MOST_MESSAGES or self.received > MOST_BYTES:
            raise EndError(f"the agent sent more than {MOST_MESSAGES} messages or {MOST_BYTES} bytes")
        message = _message(line)
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if isinstance(method, str) and (params is None or isinstance(params, dict)):
            if "id" not in message:
                await self.notice(method, params or {})
            elif isinstance(number, int) or (isinstance(number, str) and len(number) <= _LONGEST_ID):
                await self._begin(number, method, params or {})
            else:
                self._count_garbage()
        elif isinstance(number, int) and number in self._waiting and method is None:
            answered, replies = self._waiting[number]
            replies.append(message)
            answered.set()
        else:
            self._count_garbage()

    async def _begin(self, number: int | str, method: str, params: Mapping[str, Any]) -> None:
        if self.at_once >= MOST_AT_ONCE:
            error = {"code": BUSY, "message": f"{MOST_AT_ONCE} requests are waiting for their answer"}
            await self._send(id=number, error=error)
            return
        self.at_once += 1
        self.tasks.start_soon(self._answer, number, method, params)

    async def _answer(self, number: int | str, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._send(id=number, result=await self.answer(method, params))
        except RefusalError as refusal:
            await self._send(id=number, error={"code": refusal.code, "message": str(refusal)})
        finally:
            self.at_once -= 1

    def _count_garbage(self) -> None:
        self.garbage += 1
        if self.garbage > MOST_GARBAGE:
            raise EndError(f"the agent sent more than {MOST_GARBAGE} lines that are no messages")

    async def _send(self, **message: Any) -> None:
        await self.send_line(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=True).encode())


def _message(line: bytes) -> Mapping[str, Any]:
    """What a line says; empty if it is no JSON object."""
    try:
        message = parse_json(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
