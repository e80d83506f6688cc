"""One call on the wire, for our own client and for the relay alike: its time limits, its answer or its fault.

Knows no SDK and no HTTP library: the sender of the request feeds the bytes of the answer in.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import anyio

from agents.models.answer import Answer, CallFault, OnBegin
from agents.models.wire.faults import fault_of, one_line, read_quotas
from agents.models.wire.stream import MALFORMED, AnswerBuilder
from fleet.core.base.json_text import parse_json

LONGEST_LINE = 25_000_000  # bytes of one event: more than the longest answer


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take to connect, go without content (pings don't count), and take in all."""

    silence_s: float
    call_s: float
    connect_s: float = 15.0


class WireError(Exception):
    """The connection failed."""

    def __init__(self, fault: CallFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Response:
    """The head of a response and its body as it arrives. Reading the body raises `WireError`."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


@dataclass(slots=True)
class Exchange:
    """Assembles the answer of one call and watches the time it takes."""

    timeouts: Timeouts
    on_begin: OnBegin
    redact: Callable[[str], str]
    """Removes our key from a fault, which goes into the journal."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of the response."""
    _builder: AnswerBuilder = field(default_factory=AnswerBuilder)
    _fault: CallFault | None = None
    _rest: bytes = b""
    """The beginning of a line whose end has not arrived."""
    _silence: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _began: float = field(default_factory=anyio.current_time)

    @property
    def has_begun(self) -> bool:
        """Whether the service has begun to answer, and to charge."""
        return self._builder.usage is not None

    @property
    def is_over(self) -> bool:
        return self._builder.finished or self._fault is not None

    async def run(self, receive: Callable[[], Awaitable[None]]) -> Answer | CallFault:
        """The answer that `receive` feeds in. Every way a call can go wrong is a `CallFault`."""
        with (
            anyio.move_on_after(self.timeouts.call_s) as total,
            anyio.move_on_after(self.timeouts.silence_s) as self._silence,
        ):
            try:
                await receive()
            except WireError as error:
                self._fault = error.fault
        if self._silence.cancelled_caught:
            self._fault = CallFault("outage", f"no content for {self.timeouts.silence_s:g} s")
        elif total.cancelled_caught:
            self._fault = CallFault("outage", f"not finished after {self.timeouts.call_s:g} s")
        return self.result()

    def result(self) -> Answer | CallFault:
        """What has been fed in so far, as an answer or a fault."""
        seconds, request_id = anyio.current_time() - self._began, self.headers.get("request-id")
        result = self._fault or self._builder.answer(request_id=request_id, seconds=seconds)
        if isinstance(result, Answer):
            return result
        if result.kind == "outage" and result.status is None and self.has_begun:
            result = replace(result, kind="broken")  # the service works; this one answer broke off
        return replace(
            result,
            message=self.redact(result.message),
            usage=self._builder.usage,
            request_id=result.request_id or request_id,
            seconds=seconds,
        )

    def feed(self, chunk: bytes) -> None:
        """The next bytes of a streamed answer. A bad event makes it a fault; later ones may still name its usage."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._fault = self._fault or CallFault("outage", f"a line is longer than {LONGEST_LINE} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(json_object(line.removeprefix(b"data:")))

    def feed_document(self, document: bytes | bytearray) -> None:
        """An answer that was not streamed."""
        message = json_object(document)
        self._take({"type": "message_start", "message": message})
        self._take({"type": "message_delta", "delta": message})
        self._take({"type": "message_stop"})

    def refuse(self, status: int, document: object, headers: Mapping[str, str], *, default: str = "no message") -> None:
        """The service answered with an error. `default` is its message if the document has none."""
        fault = fault_of(status, document, headers, default=default, now=datetime.now(UTC))
        self._fault = self._fault or fault

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "ping":
            return
        if kind == "error":
            self.refuse(200, event, self.headers)
            return
        try:
            self._builder.take(event)
        except MALFORMED as error:
            message = one_line(f"the stream is malformed at an event of type {kind!r}: {error!r}")
            self._fault = self._fault or CallFault("outage", message)
            return
        if kind == "message_start":
            self.on_begin(read_quotas(self.headers))
        self._silence.deadline = anyio.current_time() + self.timeouts.silence_s


def json_object(data: bytes | bytearray | str) -> Mapping[str, Any]:
    """The JSON object in `data`, or an empty one."""
    try:
        value = parse_json(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
