"""A session of Claude Code while it runs: its prompt, what the operator says meanwhile, and the line that it ends with.

It speaks stream-json through the session's standard streams, which are one socket: no other process in the box can
write there, so what it passes on is the operator's, and what it reads is the session's.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import ByteStream

from agents.base.instructions import operator_text
from agents.base.transcripts import Transcript
from agents.models.wire.exchange import json_object
from agents.workers.relay import CALL, AgentRelay, RelayReply, RelayRequest
from fleet.core.state.facts import Failure
from fleet.ports.operator import Operator

LONGEST_LINE = 1024 * 1024  # bytes; a longer line is skipped
_RESULT = b'"type":"result"'
_TOO_LONG = b"a line that is too long: "


@dataclass(slots=True)
class Session:
    """Satisfies `Dialogue` with `hold`."""

    prompt: str
    operator: Operator
    transcript: Transcript
    turns: int
    """How often it may call the model."""
    passed_on: int = 0
    """How many of the operator's instructions it was given; those of its prompt are the first."""
    ending: str = ""
    """The line that says how the session ended, or its latest turn."""
    _calls: int = 0
    _unread: list[str] = field(default_factory=list)
    """What was sent, and has not been in a request to the model."""

    async def hold(self, stream: ByteStream) -> None:
        """Send the prompt, pass on what the operator says, and listen until the session has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._speak, stream)
            await self._listen(stream)
            tasks.cancel_scope.cancel()

    def listening_to(self, relay: AgentRelay) -> "OverheardRelay":
        """The relay for its calls, which tells the session of each."""
        return OverheardRelay(relay, self)

    async def note_request(self, body: Mapping[str, Any]) -> None:
        """Put on record which instructions this request to the model holds."""
        self._calls += 1
        texts = list(_texts(body.get("messages"))) if self._unread else []
        held = next((at for at, each in enumerate(self._unread) if not _is_in(each, texts)), len(self._unread))
        if held:
            read, self._unread = self._unread[:held], self._unread[held:]
            self.transcript.write("operator", content=[{"type": "text", "text": each} for each in read])
            await self.operator.mark_read(self.passed_on - len(self._unread))

    async def _speak(self, stream: ByteStream) -> None:
        """Send the prompt, and what the operator says, until the session takes no more."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stream.send(_user(self.prompt))
            while True:
                await self.operator.wait_told(self.passed_on)
                news = self.operator.told(self.passed_on)
                texts = [operator_text(each, number) for number, each in enumerate(news, start=self.passed_on + 1)]
                self.passed_on += len(news)
                self._unread += texts
                if any(each.interrupt for each in news):
                    await stream.send(_interrupt(self.passed_on))
                for text in texts:
                    await stream.send(_user(text))

    async def _listen(self, stream: ByteStream) -> None:
        """Read until the end. After a turn the session's input ends, unless it still has to read what was sent."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in _lines(stream):
                text = line.decode("utf-8", "replace")
                if _RESULT not in line or json_object(text).get("type") != "result":
                    continue
                self.ending = text
                if not self._has_unread:
                    await stream.send_eof()
                elif self._calls >= self.turns:
                    return  # another turn could only fail, and take this result away

    @property
    def _has_unread(self) -> bool:
        return bool(self._unread) or bool(self.operator.told(self.passed_on))


@dataclass(slots=True)
class OverheardRelay:
    """Satisfies `AgentRelay`: a session knows of each of its requests before the relay does."""

    relay: AgentRelay
    session: Session

    @property
    def refused(self) -> Failure | None:
        return self.relay.refused

    @property
    def failure(self) -> Failure | None:
        return self.relay.failure

    @property
    def drained(self) -> bool:
        return self.relay.drained

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        if request.path == CALL:
            await self.session.note_request(json_object(request.body))
        await self.relay.handle(request, reply)

    def close(self) -> None:
        self.relay.close()


async def _lines(stream: ByteStream) -> AsyncIterator[bytes]:
    """The lines of a stream. Of one that is too long only a part comes, which is no JSON."""
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LONGEST_LINE:
            rest = _TOO_LONG


def _is_in(text: str, texts: Sequence[str]) -> bool:
    return any(text in each for each in texts)


def _texts(messages: object) -> Iterator[str]:
    """What the session itself says in a request: neither the model's words nor results of tools."""
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") in {"user", "system"}:
            content = message.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks if isinstance(blocks, list) else ():
                if isinstance(block, dict) and block.get("type") == "text":
                    yield str(block.get("text", ""))


def _user(text: str) -> bytes:
    return _line(type="user", message={"role": "user", "content": [{"type": "text", "text": text}]})


def _interrupt(number: int) -> bytes:
    return _line(type="control_request", request_id=f"interrupt-{number}", request={"subtype": "interrupt"})


def _line(**message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=True).encode() + b"\n"
