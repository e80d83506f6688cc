"""One call in wire format, for both the client and the relay: its time limits, its answer or its fault.

Independent of the SDK and of HTTP libraries: the sender of the request feeds in the bytes of the answer.
"""

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import anyio

from agents.models.answer import Answer, Block, CallFault, FaultKind, OnBegin, Quota, QuotaKind, Quotas, ToolCall
from agents.models.text import well_formed
from fleet.core.base.output import is_deep, parse_json
from fleet.core.base.usage import Capability, Usage

# ---- stream ----------------------------------------------------------------------------------------------------------
# Assembles the events of a stream into one answer, in time linear in its length.
#
# The order and format of events are not trusted: a malformed event turns the answer into a fault.


MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""Errors raised by events and blocks that violate the protocol."""
_LONGEST = 20_000_000  # characters of one answer
_LONGEST_NAME = 200
_DEEPEST_INPUT = 100  # nesting levels of a tool's input, so that other parsers can read the next request
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_COUNTS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
    "cache_write_1h": "ephemeral_1h_input_tokens",
}


@dataclass(slots=True)
class _PartialBlock:
    """An incomplete content block. Its deltas are joined once, at the end."""

    block: Block
    texts: dict[str, list[str]] = field(default_factory=dict)
    json: list[str] = field(default_factory=list)
    closed: bool = False


@dataclass(slots=True)
class AnswerBuilder:
    """Assembles events. `finished` is set by the event that ends the message."""

    model: str = ""
    id: str | None = None
    cache_miss: str | None = None
    stop_reason: str | None = None
    finished: bool = False
    _partial: dict[int, _PartialBlock] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _size: int = 0

    @property
    def usage(self) -> Usage | None:
        """Return the usage so far; None before the answer has started."""
        return Usage(**{name: self._counts.get(key, 0) for name, key in _COUNTS.items()}) if self._counts else None

    def take(self, event: Mapping[str, Any]) -> None:
        """Process an event. Raises one of `MALFORMED`. Unknown events are skipped, as the protocol requires."""
        match event["type"]:
            case "message_start":
                message = event["message"]
                self.model = str(message["model"])[:_LONGEST_NAME]
                self.id = str(message["id"])[:_LONGEST_NAME] if message.get("id") else None
                self.cache_miss = _miss(message.get("diagnostics"))
                self._count(message.get("usage") or {})
                for index, block in enumerate(message.get("content") or ()):
                    self._partial[index] = _PartialBlock(dict(block), closed=True)
            case "content_block_start":
                self._partial[int(event["index"])] = _PartialBlock(dict(event["content_block"]))
            case "content_block_delta":
                self._grow(self._partial[int(event["index"])], event["delta"])
            case "content_block_stop":
                self._partial[int(event["index"])].closed = True
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason")
                self.cache_miss = _miss(event.get("diagnostics")) or self.cache_miss
                self._count(event.get("usage") or {})
            case "message_stop":
                self.finished = True
            case _:
                pass

    def _grow(self, partial: _PartialBlock, delta: Mapping[str, Any]) -> None:
        kind = delta["type"]
        text = ""
        if kind == "input_json_delta":
            text = delta["partial_json"]
            partial.json.append(text)
        elif kind in _TEXTS:
            text = delta[_TEXTS[kind]]
            partial.texts.setdefault(_TEXTS[kind], []).append(text)
        elif kind == "citations_delta":
            partial.block["citations"] = [*(partial.block.get("citations") or ()), delta["citation"]]
        self._size += len(text)
        if self._size > _LONGEST:
            raise ValueError(f"the answer is longer than {_LONGEST} characters")

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Update the usage. Counts in a stream are totals, so the last one is used."""
        usage = {**(usage.get("cache_creation") or {}), **usage}
        for key in _COUNTS.values():
            count = usage.get(key)
            if isinstance(count, int) and count >= 0:
                self._counts[key] = count

    def answer(self, *, request_id: str | None, seconds: float) -> Answer | CallFault:
        """Return the complete answer, or a fault."""
        if not self.finished or not all(partial.closed for partial in self._partial.values()):
            return CallFault("outage", "the stream broke off before its end")
        calls: list[ToolCall] = []
        try:
            blocks = tuple(_join(partial, calls) for _, partial in sorted(self._partial.items()))
            json.dumps(blocks, ensure_ascii=False).encode("utf-8")
        except (KeyError, TypeError, ValueError) as error:
            return CallFault("broken", f"a malformed content block: {error}")
        usage = self.usage or Usage()
        return Answer(
            blocks, self.stop_reason, usage, self.model, request_id, seconds, tuple(calls), self.id, self.cache_miss
        )


def _miss(diagnostics: object) -> str | None:
    """Return the reported reason why a prompt missed the cache, or None."""
    reason = diagnostics.get("cache_miss_reason") if isinstance(diagnostics, Mapping) else None
    kind = reason.get("type") if isinstance(reason, Mapping) else None
    return kind[:_LONGEST_NAME] if isinstance(kind, str) else None


def _join(partial: _PartialBlock, calls: list[ToolCall]) -> Block:
    """Return the complete block, and add a tool call to `calls`."""
    block = partial.block
    for name, texts in partial.texts.items():
        block[name] = well_formed("".join([block.get(name) or "", *texts]))
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        raise TypeError("text")
    if block["type"] != "tool_use":
        return block
    for name in ("id", "name"):
        if not isinstance(block[name], str):
            raise TypeError(name)
    value, problem = _tool_input(block, "".join(partial.json))
    calls.append(ToolCall(block["id"], block["name"], value, problem))
    return {**block, "input": value}


def _tool_input(block: Block, text: str) -> tuple[dict[str, Any], str | None]:
    try:
        value = parse_json(well_formed(text)) if text.strip() else block.get("input", {})
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # input that can't be sent back is invalid
    except ValueError as error:
        return {}, f"its input is not valid JSON ({error})"
    if not isinstance(value, dict):
        return {}, "its input is not a JSON object"
    if is_deep(value, _DEEPEST_INPUT):
        return {}, f"its input is nested more than {_DEEPEST_INPUT} levels deep"
    return value, None


# ---- exchange --------------------------------------------------------------------------------------------------------


LONGEST_LINE = 25_000_000  # bytes of one event, more than the longest answer


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of a call: to connect, without content (pings don't count), and in total."""

    silence_s: float
    call_s: float
    connect_s: float = 15.0


class WireError(Exception):
    """A failed connection."""

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
    """Assembles the answer of one call and enforces its time limits."""

    timeouts: Timeouts
    on_begin: OnBegin
    redact: Callable[[str], str]
    """Redacts the key in a fault, which is written to the journal."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of the response."""
    _builder: AnswerBuilder = field(default_factory=AnswerBuilder)
    _fault: CallFault | None = None
    _rest: bytes = b""
    """The start of an incomplete line."""
    _silence: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _began: float = field(default_factory=anyio.current_time)

    @property
    def has_begun(self) -> bool:
        """Whether the answer, and therefore billing, has started."""
        return self._builder.usage is not None

    @property
    def is_over(self) -> bool:
        return self._builder.finished or self._fault is not None

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Feed in the answer within this block. Every error becomes a fault."""
        with (
            anyio.move_on_after(self.timeouts.call_s) as total,
            anyio.move_on_after(self.timeouts.silence_s) as self._silence,
        ):
            try:
                yield
            except WireError as error:
                self._fault = error.fault
        if self._silence.cancelled_caught:
            self._fault = CallFault("outage", f"no content for {self.timeouts.silence_s:g} s")
        elif total.cancelled_caught:
            self._fault = CallFault("outage", f"not finished after {self.timeouts.call_s:g} s")

    def result(self) -> Answer | CallFault:
        """Return the received data as an answer or a fault."""
        seconds, request_id = anyio.current_time() - self._began, self.headers.get("request-id")
        result = self._fault or self._builder.answer(request_id=request_id, seconds=seconds)
        if isinstance(result, Answer):
            return result
        if result.kind == "outage" and result.status is None and self.has_begun:
            result = replace(result, kind="broken")  # the service works, only this answer broke off
        return replace(
            result,
            message=self.redact(result.message),
            usage=self._builder.usage,
            request_id=result.request_id or request_id,
            seconds=seconds,
        )

    def feed(self, chunk: bytes) -> None:
        """Process bytes of a streamed answer. After an invalid event it is a fault, but usage is still read."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._fault = self._fault or CallFault("outage", f"a line is longer than {LONGEST_LINE} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(json_object(line.removeprefix(b"data:")))

    def feed_document(self, document: bytes | bytearray) -> None:
        """Process an answer that was not streamed."""
        message = json_object(document)
        self._take({"type": "message_start", "message": message})
        self._take({"type": "message_delta", "delta": message})
        self._take({"type": "message_stop"})

    def refuse(self, status: int, document: object, headers: Mapping[str, str], *, default: str = "no message") -> None:
        """Process an error response. `default` is the message if the document has none."""
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


# ---- faults ----------------------------------------------------------------------------------------------------------
# Classifies what a server answered. Pure tables, tested without a server.


_LONGEST_FAULT = 600  # characters of a server's message

_TYPES: dict[str, FaultKind] = {
    "rate_limit_error": "limit",
    "overloaded_error": "outage",
    "api_error": "outage",
    "timeout_error": "outage",
    "conflict_error": "outage",
    "authentication_error": "refused",
    "billing_error": "refused",
    "permission_error": "refused",
    "not_found_error": "gone",
    "invalid_request_error": "configuration",
    "request_too_large": "too_long",
}
_STATUSES: dict[int, FaultKind] = {401: "refused", 402: "refused", 403: "refused", 404: "gone", 429: "limit"}
_OUTAGE_STATUSES = frozenset({200, 408, 409, 425})
_OK, _TOO_LARGE, _FIRST_SERVER_ERROR = 200, 413, 500
_SPENT = ("spend_limit", "credit", "billing")  # waiting does not help
_OF_CONVERSATION = ("messages.", "messages:", "in `thinking` block", "bound to a different conversation")
"""Texts in errors that concern the messages of one conversation."""
_TOO_LONG = ("prompt is too long", "too many tokens", "exceed context limit", "context window")
_TRANSIENT: frozenset[FaultKind] = frozenset({"limit", "outage"})
_QUOTAS: dict[QuotaKind, str] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}


def fault_of(status: int, document: object, headers: Mapping[str, str], *, default: str, now: datetime) -> CallFault:
    """Convert an error response, or an error event in a stream (with status 200), to a fault."""
    error = _object(_object(document).get("error"))
    type_, code = _text(error.get("type")), _text(_object(error.get("details")).get("error_code"))
    message = _text(error.get("message")) or default
    title = f"HTTP {status} {type_}".rstrip() if status != _OK else (type_ or "error in the stream")
    kind = _kind(status, type_, message)
    if kind in _TRANSIENT and any(word in code for word in _SPENT):
        kind = "refused"
    if kind in _TRANSIENT and headers.get("x-should-retry", "").lower() == "false":
        kind = "other"
    return CallFault(
        kind=kind,
        message=f"{title}: {one_line(message)}",
        status=status,
        retry_after_s=retry_after_s(headers, now=now) if kind in _TRANSIENT else None,
        quotas=read_quotas(headers),
        request_id=headers.get("request-id"),
    )


def _kind(status: int, type_: str, message: str) -> FaultKind:
    names_length = type_ == "invalid_request_error" and any(phrase in message.lower() for phrase in _TOO_LONG)
    if status == _TOO_LARGE or names_length:
        return "too_long"
    if type_ == "invalid_request_error" and any(phrase in message for phrase in _OF_CONVERSATION):
        return "conversation"
    if type_ in _TYPES:
        return _TYPES[type_]
    if status in _OUTAGE_STATUSES or status >= _FIRST_SERVER_ERROR:
        return "outage"
    return _STATUSES.get(status, "configuration")


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def read_quotas(headers: Mapping[str, str]) -> Quotas:
    """Parse the rate-limit headers. Quotas without numbers are omitted."""
    quotas: dict[QuotaKind, Quota] = {}
    for kind, name in _QUOTAS.items():
        limit = _number(headers.get(f"anthropic-ratelimit-{name}-limit"))
        remaining = _number(headers.get(f"anthropic-ratelimit-{name}-remaining"))
        if limit and remaining is not None:
            quotas[kind] = Quota(limit, remaining)
    return quotas


def one_line(message: str) -> str:
    """Return a server's message as one line of limited length."""
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST_FAULT else f"{text[: _LONGEST_FAULT - 1]}…"


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the wait requested by the server, in seconds; None if it is missing or invalid."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


# ---- lacking ---------------------------------------------------------------------------------------------------------
# Finds the capability that the service rejected. The client does not use it in further requests.
#
# A service names it in a response with status 400. `fleet doctor --live` finds capabilities that errors don't name.


_SIGNS: dict[Capability, re.Pattern[str]] = {
    "diagnostics": re.compile(r"\bdiagnostics\b"),
    "effort": re.compile(r"\boutput_config\b|\beffort\b"),
    "cache_hour": re.compile(r"\bttl\b"),
    "cache": re.compile(r"\bcache_control\b"),
    "thinking": re.compile(r"\bthinking(\.(type|display|adaptive)|: )|\bdisplay\b|'adaptive'"),
    "streaming": re.compile(r"(?<!in the )\bstream(ing)?\b"),
    "built_in_tools": re.compile(r"\bbash_\d+|\btext_editor_\d+|\btools\.\d+\.type\b"),
    "strict_tools": re.compile(r"grammar|strict|schema"),
}
"""Patterns of capabilities in error messages, most specific first."""


def refused_capability(fault: CallFault, without: frozenset[Capability]) -> Capability | None:
    """Return the rejected capability, among those that were requested."""
    if fault.kind != "configuration":
        return None
    text = fault.message.lower()
    return next((name for name, sign in _SIGNS.items() if name not in without and sign.search(text)), None)
