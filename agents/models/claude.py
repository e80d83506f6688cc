"""Requests with the `anthropic` SDK. Its types are not used outside this module.

Retries and permits are handled by `calls.py`. Import this module late, because loading the SDK takes a second.
"""

import json
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import anthropic
import anyio
import httpx2
from anyio.lowlevel import checkpoint

from agents.models.access import Access, Platform, as_it_is
from agents.models.answer import CallFault, Request, parameters_of
from agents.models.exchange import Exchange, Response, Timeouts, WireError, fault_of, json_object, one_line
from agents.models.prices import ModelLimits, reported_limits
from fleet.core.base.usage import Capability

Reported = TypeVar("Reported")
_CONNECTIONS = 2000
_CLOSE_S = 5.0
_ASK_S = 5.0
_TOKENS = 8
_TOKEN_HEADERS = ("authorization", "x-amz-security-token")


class SentTokens:
    """The latest tokens sent by a cloud's libraries, to redact them if the service repeats them."""

    def __init__(self) -> None:
        self.latest: deque[str] = deque(maxlen=_TOKENS)

    async def note(self, request: httpx2.Request) -> None:
        for name in _TOKEN_HEADERS:
            token = request.headers.get(name, "").removeprefix("Bearer ")
            if (
                token and not token.startswith("AWS4-") and token not in self.latest
            ):  # signatures are only valid for one request
                self.latest.append(token)


@asynccontextmanager
async def open_claude(access: Access, timeouts: Timeouts) -> AsyncIterator["Claude"]:
    """Connect to a service. Environment variables, profiles and proxies are ignored."""
    timeout = httpx2.Timeout(timeouts.call_s, connect=timeouts.connect_s)  # `Exchange` detects silence
    sent = SentTokens()
    async with anthropic.DefaultAioHttpClient(
        trust_env=False,
        limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        timeout=timeout,
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"request": [sent.note], "response": [bound]},
    ) as http:
        options: dict[str, Any] = {
            "max_retries": 0,
            "timeout": timeout,
            "http_client": http,
            "open_telemetry": False,
        }
        yield Claude(_platform(access, options), http, access, sent)


def _platform(access: Access, options: dict[str, Any]) -> Platform:
    """Create the client for a kind of service. Raises `WireError` if that fails."""
    try:
        match access.kind:
            case "api":
                headers: dict[str, Any] = {**access.headers, **access.authorization}
                if not access.bearer:  # the SDK would also send the key as a bearer token
                    headers["authorization"] = anthropic.omit
                return Platform(
                    anthropic.AsyncAnthropic(
                        api_key=access.api_key, base_url=access.base_url, default_headers=headers, **options
                    )
                )
            case "bedrock":
                from agents.models.bedrock import bedrock  # noqa: PLC0415 - its packages are optional

                return bedrock(access, **options)
            case "vertex":
                return vertex(access, **options)
    except ValueError as error:
        raise WireError(CallFault("configuration", one_line(f"models.region is missing: {error}"))) from error


@dataclass(frozen=True, slots=True)
class Claude:
    """Sends requests to the Messages API."""

    _platform: Platform
    _http: httpx2.AsyncClient
    _access: Access
    sent: "SentTokens"

    @property
    def _sdk(self) -> Any:
        return self._platform.sdk

    async def send(self, request: Request, exchange: Exchange, *, without: frozenset[Capability]) -> None:
        """Feed the raw answer to `exchange`, because the SDK's events drop unknown fields. Raises `WireError`."""
        parameters = parameters_of(request, without)
        with self._wire_errors():
            try:
                if (
                    not request.max_tokens or "streaming" in without
                ):  # a request for no tokens only keeps the cache warm
                    raw = await self._sdk.messages.with_raw_response.create(**parameters)
                    exchange.headers = raw.headers
                    exchange.feed_document(await raw.read())
                    return
                stream = await self._sdk.messages.create(**parameters, stream=True)
            except anthropic.APIStatusError as error:
                headers = error.response.headers
                document = self._platform.error_document(error.body, headers)
                exchange.refuse(error.status_code, document, headers, default=error.message)
                return
            exchange.headers, decode = stream.response.headers, self._platform.decoder()
            try:
                async for chunk in stream.response.aiter_bytes():
                    for line in decode(chunk):
                        exchange.feed(line)
                    if exchange.is_over:
                        return
            finally:
                with anyio.move_on_after(_CLOSE_S, shield=True):
                    await stream.close()

    async def limits(self, model: str) -> ModelLimits | CallFault:
        """Return the limits of a model as reported by the service."""
        return await self._asked(self._limits(model))

    async def _limits(self, model: str) -> ModelLimits | None:
        reported = await self._sdk.models.retrieve(model)
        return reported_limits(model, reported.max_input_tokens, reported.max_tokens)

    async def count(self, request: Request, without: frozenset[Capability]) -> int | CallFault:
        """Count the tokens of a prompt with the service."""
        return await self._asked(self._count(request, without))

    async def _count(self, request: Request, without: frozenset[Capability]) -> int | None:
        parameters = parameters_of(request, without)
        counted = {name: parameters[name] for name in ("model", "system", "tools", "messages")}
        tokens: object = (await self._sdk.messages.count_tokens(**counted)).input_tokens
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    async def about_batches(self, method: str, path: str, body: Mapping[str, Any] | None, limit_s: float) -> bytes:
        """Send a request about batches. Raises `WireError`."""
        if self._access.kind != "api":
            raise WireError(
                CallFault("other", f"the service ({self._access.kind}) does not support batches", status=404)
            )
        send = self._sdk.post if method == "POST" else self._sdk.get
        options = {"cast_to": httpx2.Response, **({"body": body} if body is not None else {})}
        return bytes(await self._within(limit_s, send(f"/v1/messages/batches{path}", **options)))

    async def batch_results(self, batch: str, limit_s: float) -> list[bytes]:
        """Fetch the lines of a batch's results. The URL in the service's answer is not used, to protect the key."""
        return (await self.about_batches("GET", f"/{quote(batch, safe='')}/results", None, limit_s)).splitlines()

    async def _within(self, limit_s: float, request: Awaitable[httpx2.Response]) -> bytes:
        with self._wire_errors():
            with anyio.move_on_after(limit_s):
                return (await request).content
            raise WireError(CallFault("outage", f"not finished after {limit_s:g} s"))

    @asynccontextmanager
    async def forward(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        """Forward a request with the key added. Raises `WireError`."""
        headers = {**headers, "accept-encoding": "identity"}
        with self._wire_errors():
            if self._access.kind != "api":
                async with self._forward_translated(path, body, headers) as response:
                    yield response
                return
            headers |= {**self._access.headers, **self._access.authorization}
            async with self._http.stream(
                "POST", self._access.base_url.rstrip("/") + path, content=body, headers=headers
            ) as response:
                yield Response(response.status_code, response.headers, response.aiter_raw())

    @asynccontextmanager
    async def _forward_translated(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        """Forward a request to a cloud: the SDK sets paths and signs. The answer is converted to the Messages API."""
        document = dict(json_object(body))
        kept = {"headers": {name: value for name, value in headers.items() if name.startswith("anthropic-")}}
        try:
            if not document.get("stream"):
                whole = await self._sdk.post(path, cast_to=httpx2.Response, body=document, options=kept)
                yield Response(whole.status_code, whole.headers, whole.aiter_bytes())
                return
            stream_cls = anthropic.AsyncStream[object]
            stream = await self._sdk.post(
                path, cast_to=object, body=document, options=kept, stream=True, stream_cls=stream_cls
            )
        except anthropic.APIStatusError as error:
            described = self._platform.error_document(error.body, error.response.headers)
            yield Response(error.status_code, _plain_headers(error.response.headers), _once(described))
            return
        try:
            sent = {**_plain_headers(stream.response.headers), "content-type": "text/event-stream"}
            yield Response(stream.response.status_code, sent, self._events(stream.response))
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await stream.close()

    async def _events(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """Yield the events of a stream in the format of the Messages API."""
        decode = self._platform.decoder()
        async for chunk in response.aiter_bytes():
            for line in decode(chunk):
                yield line if decode is as_it_is else _named_event(line)

    @contextmanager
    def _wire_errors(self) -> Iterator[None]:
        try:
            yield
        except anthropic.APIStatusError as error:
            headers, now = error.response.headers, datetime.now(UTC)
            document = self._platform.error_document(error.body, headers)
            raise WireError(fault_of(error.status_code, document, headers, default=error.message, now=now)) from error
        except self._platform.errors as error:
            fault = self._platform.fault_of(error)
            if fault is None:
                raise
            raise WireError(fault) from error
        except (anthropic.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
            cause = error.__cause__ or error
            message = one_line(f"{type(cause).__name__}: {cause}".rstrip(": "))
            fault = CallFault("configuration" if "CERTIFICATE_VERIFY_FAILED" in message else "outage", message)
            raise WireError(fault) from error

    async def _asked(self, question: Awaitable[Reported | None]) -> Reported | CallFault:
        """Return the service's report, or a fault if there is none or it is invalid."""
        try:
            with anyio.fail_after(_ASK_S), self._wire_errors():
                reported = await question
        except WireError as error:
            return error.fault
        except (anthropic.AnthropicError, ValueError, AttributeError, TypeError, TimeoutError) as error:
            return CallFault("other", one_line(f"{type(error).__name__}: {error}".rstrip(": ")))
        return CallFault("other", "the service's answer is invalid") if reported is None else reported


def _named_event(line: bytes) -> bytes:
    """Return a line of data as an event with its name."""
    name = str(json_object(line.removeprefix(b"data:")).get("type", ""))
    return f"event: {name}\n".encode() + line + b"\n" if name.isidentifier() else line + b"\n"


def _plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() != "content-type"} | {
        "content-type": "application/json"
    }


async def _once(document: object) -> AsyncIterator[bytes]:
    yield json.dumps(document, default=str).encode()


# ---- bounded ---------------------------------------------------------------------------------------------------------
# Limits the size of decompressed answers, because a small body may decompress to more than the available memory.
#
# A hook of the HTTP client decompresses bodies in pieces, so that only one piece is in memory and time limits are
# checked in between.


LONGEST = 100_000_000  # bytes of an answer: several times the longest one with an event per word
LONGEST_ERROR = 1_000_000  # bytes read of an error's body
PIECE = 64 * 1024
_EITHER = 32 + zlib.MAX_WBITS  # zlib detects the format
UNPACKED = {"gzip": _EITHER, "x-gzip": _EITHER, "deflate": _EITHER}
"""The supported encodings. Others are rejected."""


async def bound(response: httpx2.Response) -> None:
    """Limit the body of a response while it is read."""
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    response.headers.pop("content-length", None)
    stream = response.stream
    if not isinstance(stream, httpx2.AsyncByteStream):
        raise httpx2.StreamError("the answer can't be read as a stream")
    response.stream = BoundedStream(stream, encoding, is_error=not response.is_success)


class BoundedStream(httpx2.AsyncByteStream):
    """The decompressed body. Raises `httpx2.DecodingError` if it is too long or its encoding is not supported."""

    def __init__(self, packed: httpx2.AsyncByteStream, encoding: str, *, is_error: bool) -> None:
        self._packed = packed
        self._encoding = encoding
        self._is_error = is_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, limit = 0, LONGEST_ERROR if self._is_error else LONGEST
        async for piece in self._unpack():
            size += len(piece)
            if size > limit and self._is_error:
                return
            if size > limit:
                raise httpx2.DecodingError(f"the answer is longer than {limit} bytes")
            yield piece

    async def _unpack(self) -> AsyncIterator[bytes]:
        if self._encoding in {"", "identity"}:
            async for chunk in self._packed:
                yield chunk
            return
        if self._encoding not in UNPACKED:
            raise httpx2.DecodingError(f"the answer has the encoding {self._encoding!r}, which was not requested")
        unpack = zlib.decompressobj(UNPACKED[self._encoding])
        async for chunk in self._packed:
            rest = chunk
            while rest:
                try:
                    piece = unpack.decompress(rest, PIECE)
                except zlib.error as error:
                    raise httpx2.DecodingError(f"the answer can't be decompressed: {error}") from error
                await checkpoint()  # checks time limits while a small answer is decompressed
                if piece:
                    yield piece
                rest = unpack.unconsumed_tail

    async def aclose(self) -> None:
        await self._packed.aclose()


# ---- vertex ----------------------------------------------------------------------------------------------------------
# Claude on Google Vertex AI: the SDK's client. Credentials are found by google-auth.


_NAMED = ("project_id", "API token")
"""Missing settings, as named in the SDK's errors."""


def vertex(access: Access, **options: Any) -> Platform:
    """Create the platform for Vertex AI. Raises `ValueError` if no region is found."""
    from google.auth.exceptions import GoogleAuthError, TransportError  # noqa: PLC0415 - its package is optional

    def fault(error: Exception) -> CallFault | None:
        if isinstance(error, TransportError):
            return CallFault("outage", one_line(f"Google's credentials can't be fetched: {error}"))
        if not isinstance(error, GoogleAuthError) and not any(word in str(error) for word in _NAMED):
            is_path = isinstance(error, ValueError)  # the model name does not form a valid path
            return CallFault("configuration", one_line(f"the request can't be sent: {error}")) if is_path else None
        return CallFault("refused", one_line(f"no Google credentials: {type(error).__name__}: {error}"))

    client = anthropic.AsyncAnthropicVertex(
        region=access.region or anthropic.NOT_GIVEN,
        project_id=access.project or anthropic.NOT_GIVEN,
        base_url=access.base_url or None,
        default_headers=access.headers,
        **options,
    )
    return Platform(client, errors=(GoogleAuthError, RuntimeError, ValueError), fault_of=fault)
