"""The only user of the `anthropic` SDK: it sends requests, and nothing of the SDK gets out.

Never retries and never waits for a permit: `calls.py` does that. Import this file late; the SDK takes a second.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anthropic
import anyio
import httpx2

from agents.models.answer import CallFault, Request
from agents.models.cost.prices import ModelLimits, reported_limits
from agents.models.wire.bounded import bound
from agents.models.wire.exchange import Exchange, Response, Timeouts, WireError
from agents.models.wire.faults import one_line
from agents.models.wire.features import Feature
from agents.models.wire.parameters import parameters_of

_CONNECTIONS = 2000
_CLOSE_S = 5.0
_ASK_S = 5.0


@asynccontextmanager
async def open_claude(base_url: str, api_key: str, timeouts: Timeouts) -> AsyncIterator["Claude"]:
    """A connection to `base_url` that ignores environment variables, profiles and proxies."""
    timeout = httpx2.Timeout(timeouts.call_s, connect=timeouts.connect_s)  # `Exchange` watches for silence
    async with anthropic.DefaultAioHttpClient(
        trust_env=False,
        limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
        timeout=timeout,
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [bound]},
    ) as http:
        sdk = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=timeout,
            http_client=http,
            open_telemetry=False,
        )
        yield Claude(sdk, http, base_url.rstrip("/"), api_key)


@dataclass(frozen=True, slots=True)
class Claude:
    """Sends requests to the Messages API."""

    _sdk: anthropic.AsyncAnthropic
    _http: httpx2.AsyncClient
    _base_url: str
    _api_key: str = field(repr=False)

    async def send(self, request: Request, exchange: Exchange, *, without: frozenset[Feature]) -> None:
        """Feed the raw answer to `exchange`; the SDK's own events lack unknown fields. Raises `WireError`."""
        parameters = parameters_of(request, without)
        with _wire_errors():
            try:
                if not request.max_tokens:  # it only keeps the cache warm, and its answer is empty
                    raw = await self._sdk.messages.with_raw_response.create(**parameters)
                    exchange.headers = raw.headers
                    exchange.feed_document(await raw.read())
                    return
                stream = await self._sdk.messages.create(**parameters, stream=True)
            except anthropic.APIStatusError as error:
                exchange.refuse(error.status_code, error.body, error.response.headers, default=error.message)
                return
            exchange.headers = stream.response.headers
            try:
                async for chunk in stream.response.aiter_bytes():
                    exchange.feed(chunk)
                    if exchange.is_over:
                        return
            finally:
                with anyio.move_on_after(_CLOSE_S, shield=True):
                    await stream.close()

    async def limits(self, model: str) -> ModelLimits | None:
        """What the service reports about a model; None if that makes no sense."""
        try:
            with anyio.fail_after(_ASK_S):
                reported = await self._sdk.models.retrieve(model)
            return reported_limits(model, reported.max_input_tokens, reported.max_tokens)
        except (
            anthropic.AnthropicError,
            httpx2.HTTPError,
            httpx2.StreamError,
            ValueError,
            AttributeError,
            TimeoutError,
        ):
            return None

    @asynccontextmanager
    async def forward(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        """Send a request unchanged but for the key. Raises `WireError`."""
        headers = {**headers, "x-api-key": self._api_key, "accept-encoding": "identity"}
        with _wire_errors():
            async with self._http.stream("POST", self._base_url + path, content=body, headers=headers) as response:
                yield Response(response.status_code, response.headers, response.aiter_raw())


@contextmanager
def _wire_errors() -> Iterator[None]:
    try:
        yield
    except (anthropic.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
        cause = error.__cause__ or error
        message = one_line(f"{type(cause).__name__}: {cause}".rstrip(": "))
        fault = CallFault("configuration" if "CERTIFICATE_VERIFY_FAILED" in message else "outage", message)
        raise WireError(fault) from error
