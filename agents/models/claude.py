"""The one doorway to the `anthropic` SDK: a request becomes an answer or a fault; nothing of the SDK gets out.

Never retries and never waits for a turn: that is `calls.py`'s. Import this file late; the SDK takes a second.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

import anthropic
import anyio
import httpx2
from anthropic import AsyncStream
from anthropic.types import RawMessageStreamEvent

from agents.models.answer import Answer, Begun, Block, CallFault, Request
from agents.models.faults import from_error, headroom, shortened
from agents.models.stream import Fold, Senseless
from fleet.ports import UsageError

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_PROBE_S = 5.0
_CONNECTIONS = 2000
_CLOSE_S = 5.0
_CACHE: Block = {"type": "ephemeral"}


@dataclass(frozen=True, slots=True)
class Line:
    """How long we wait for a server, and for what."""

    connect_s: float
    silence_s: float
    call_s: float


@asynccontextmanager
async def open_claude(base_url: str, api_key: str, line: Line) -> AsyncIterator["Claude"]:
    """A client for `base_url` that no environment variable, profile or proxy setting can bend. Raises `UsageError`."""
    _check(base_url)
    async with anthropic.DefaultAioHttpClient(
        trust_env=False,
        limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        timeout=_timeout(line),
        follow_redirects=False,
    ) as http:
        client = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=_timeout(line),
            http_client=http,
            open_telemetry=False,
        )
        yield Claude(client, line)


async def is_simulated(base_url: str) -> bool:
    """Whether a service on this machine says of itself that its answers are simulated. No other host is asked."""
    if httpx2.URL(base_url).host not in _LOOPBACK:
        return False
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=_PROBE_S) as client:
            answer = await client.get(f"{base_url.rstrip('/')}/healthz")
    except httpx2.HTTPError:
        return False
    return "x-simulated-model" in answer.headers


def _check(base_url: str) -> None:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise UsageError(f"models.base_url {base_url!r} can't be used: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(f"models.base_url {base_url!r} can't be used: write it like https://api.anthropic.com")


def _timeout(line: Line) -> httpx2.Timeout:
    return httpx2.Timeout(line.call_s, connect=line.connect_s)  # silence is watched for by what it says, not by bytes


class Claude:
    """Answers requests over the Messages API."""

    def __init__(self, client: anthropic.AsyncAnthropic, line: Line) -> None:
        self._client = client
        self._line = line
        self._strict = True

    async def ask(self, request: Request) -> Answer | CallFault:
        """One call. Every way it can go wrong is a `CallFault`."""
        strict = self._strict
        result = await self._ask(request, strict=strict)
        if strict and isinstance(result, CallFault) and _refuses_grammar(result):
            self._strict = False  # the tool's own parser checks the input all the same
            result = await self._ask(request, strict=False)
        return result

    async def _ask(self, request: Request, *, strict: bool) -> Answer | CallFault:
        fold = Fold()
        began = anyio.current_time()
        request_id: str | None = None
        fault: CallFault | None = None
        with anyio.move_on_after(self._line.call_s) as whole, anyio.move_on_after(self._line.silence_s) as quiet:
            try:
                stream = await self._open(request, strict=strict)
                request_id = stream.response.headers.get("request-id")
                fault = await self._read(stream, fold, quiet, request.begun)
            except (anthropic.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
                fault = _fault(error)
        seconds = anyio.current_time() - began
        if quiet.cancelled_caught:
            fault = CallFault("outage", f"no content for {self._line.silence_s:g} s")
        elif whole.cancelled_caught:
            fault = CallFault("outage", f"not finished after {self._line.call_s:g} s")
        if fault is None:
            return fold.answer(request_id=request_id, seconds=seconds)
        used = fold.usage if fold.begun else None
        if fault.kind == "outage" and fault.status is None and fold.begun:
            fault = replace(fault, kind="broken")  # it was there: what broke is this one answer
        said = self._without_key(fault.message)  # a fault goes into the journal
        return replace(fault, message=said, usage=used, request_id=fault.request_id or request_id, seconds=seconds)

    def _without_key(self, text: str) -> str:
        key = self._client.api_key
        return text.replace(key, "[key]") if key else text

    async def _open(self, request: Request, *, strict: bool) -> AsyncStream[RawMessageStreamEvent]:
        return await self._client.messages.create(
            model=request.model,
            max_tokens=request.max_tokens,
            system=[{"type": "text", "text": request.system, "cache_control": cast("Any", _CACHE)}],
            tools=cast("Any", [tool if strict else _lenient(tool) for tool in request.tools]),
            messages=cast("Any", _with_breakpoints(request)),
            stream=True,
        )

    async def _read(
        self,
        stream: AsyncStream[RawMessageStreamEvent],
        fold: Fold,
        quiet: anyio.CancelScope,
        begun: Begun,
    ) -> CallFault | None:
        """Fold the raw events (the SDK's own drop pings and unknown fields); None when the stream came to an end."""
        headers = stream.response.headers
        try:
            async for sent in AsyncStream.raw_events(stream.response):
                event = _parsed(sent.data) if sent.data else None
                if event is None or event.get("type") == "ping":
                    continue
                if sent.event == "error" or event.get("type") == "error":
                    return _event_fault(event, headers)
                fold.take(event)
                if event.get("type") == "message_start":
                    begun(headroom(headers))
                quiet.deadline = anyio.current_time() + self._line.silence_s
                if fold.finished:
                    return None
        except (Senseless, UnicodeDecodeError) as error:
            return CallFault("outage", f"the stream makes no sense: {shortened(str(error))}")
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await stream.close()
        return None


def _with_breakpoints(request: Request) -> list[Block]:
    """The messages with the three breakpoints that the system's own leaves room for; the blocks stay as they are.

    One ends what other conversations begin with, too. One stands where the last call ended, which a turn of many blocks
    would else not find. One is at the end.
    """
    messages = list(request.messages)
    ours = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in ours[-2:]:
        messages[index] = _marked(messages[index], -1)
    if request.shared:
        messages[0] = _marked(messages[0], request.shared - 1)
    return messages


def _marked(message: Block, at: int) -> Block:
    if not isinstance(message["content"], list):
        return message
    content = list(message["content"])
    content[at] = {**content[at], "cache_control": _CACHE}
    return {**message, "content": content}


def _lenient(tool: Block) -> Block:
    return {key: value for key, value in tool.items() if key != "strict"}


def _refuses_grammar(fault: CallFault) -> bool:
    """Strict schemas have limits that the service alone knows."""
    text = fault.message.lower()
    return fault.kind == "configuration" and any(word in text for word in ("grammar", "strict", "schema"))


def _parsed(data: str) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Senseless(f"an event that is no JSON ({error})") from error
    if not isinstance(event, dict):
        raise Senseless("an event that is no object")
    return event


def _event_fault(event: Mapping[str, Any], headers: Mapping[str, str]) -> CallFault:
    error = event.get("error")
    said = error if isinstance(error, Mapping) else {}
    details = said.get("details")
    return from_error(
        200,
        type_=_text(said.get("type")),
        code=_text(details.get("error_code")) if isinstance(details, Mapping) else None,
        message=_text(said.get("message")) or "no message",
        headers=headers,
        now=datetime.now(UTC),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _fault(error: anthropic.APIError | httpx2.HTTPError | httpx2.StreamError) -> CallFault:
    if isinstance(error, anthropic.APIStatusError):
        return from_error(
            error.status_code,
            type_=_text(error.type),
            code=_text(error.error_code),
            message=_text(error.api_message) or error.message,
            headers=error.response.headers,
            now=datetime.now(UTC),
        )
    cause = error.__cause__ or error
    said = shortened(f"{type(cause).__name__}: {cause}".rstrip(": "))
    return CallFault("configuration" if "CERTIFICATE_VERIFY_FAILED" in said else "outage", said)
