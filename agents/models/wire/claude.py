"""The only user of the `anthropic` SDK: it sends requests, and nothing of the SDK gets out.

Never retries and never waits for a permit: `calls.py` does that. Import this file late; the SDK takes a second.
"""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import anthropic
import anyio
import httpx2

from agents.models.answer import CallFault, Request
from agents.models.cost.prices import ModelLimits, reported_limits
from agents.models.wire.access import Access
from agents.models.wire.bounded import bound
from agents.models.wire.exchange import Exchange, Response, Timeouts, WireError
from agents.models.wire.faults import fault_of, one_line
from agents.models.wire.parameters import parameters_of
from fleet.core.base.capabilities import Capability

Reported = TypeVar("Reported")
_CONNECTIONS = 2000
_CLOSE_S = 5.0
_ASK_S = 5.0


@asynccontextmanager
async def open_claude(access: Access, timeouts: Timeouts) -> AsyncIterator["Claude"]:
    """A connection to a service that ignores environment variables, profiles and proxies."""
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
            api_key=access.api_key,
            base_url=access.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=http,
            open_telemetry=False,
        )
        yield Claude(sdk, http, access)


@dataclass(frozen=True, slots=True)
class Claude:
    """Sends requests to the Messages API."""

    _sdk: anthropic.AsyncAnthropic
    _http: httpx2.AsyncClient
    _access: Access

    async def send(self, request: Request, exchange: Exchange, *, without: frozenset[Capability]) -> None:
        """Feed the raw answer to `exchange`; the SDK's own events lack unknown fields. Raises `WireError`."""
        parameters = parameters_of(request, without)
        with _wire_errors():
            try:
                if not request.max_tokens or "streaming" in without:  # the first only keeps the cache warm
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

    async def limits(self, model: str) -> ModelLimits | CallFault:
        """What the service reports about a model."""
        return await _asked(self._limits(model))

    async def _limits(self, model: str) -> ModelLimits | None:
        reported = await self._sdk.models.retrieve(model)
        return reported_limits(model, reported.max_input_tokens, reported.max_tokens)

    async def count(self, request: Request, without: frozenset[Capability]) -> int | CallFault:
        """The tokens of a prompt, as the service counts them."""
        return await _asked(self._count(request, without))

    async def _count(self, request: Request, without: frozenset[Capability]) -> int | None:
        parameters = parameters_of(request, without)
        counted = {name: parameters[name] for name in ("model", "system", "tools", "messages")}
        tokens: object = (await self._sdk.messages.count_tokens(**counted)).input_tokens
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    @asynccontextmanager
    async def forward(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        """Send a request unchanged but for the key. Raises `WireError`."""
        headers = {**headers, "x-api-key": self._access.api_key, "accept-encoding": "identity"}
        with _wire_errors():
            async with self._http.stream(
                "POST", self._access.base_url.rstrip("/") + path, content=body, headers=headers
            ) as response:
                yield Response(response.status_code, response.headers, response.aiter_raw())


async def _asked(question: Awaitable[Reported | None]) -> Reported | CallFault:
    """What the service reports; a fault if it does not, or if that makes no sense."""
    try:
        with anyio.fail_after(_ASK_S), _wire_errors():
            reported = await question
    except WireError as error:
        return error.fault
    except (anthropic.AnthropicError, ValueError, AttributeError, TypeError, TimeoutError) as error:
        return CallFault("other", one_line(f"{type(error).__name__}: {error}".rstrip(": ")))
    return CallFault("other", "the answer makes no sense") if reported is None else reported


@contextmanager
def _wire_errors() -> Iterator[None]:
    try:
        yield
    except anthropic.APIStatusError as error:
        headers, now = error.response.headers, datetime.now(UTC)
        fault = fault_of(error.status_code, error.body, headers, default=error.message, now=now)
        raise WireError(fault) from error
    except (anthropic.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
        cause = error.__cause__ or error
        message = one_line(f"{type(cause).__name__}: {cause}".rstrip(": "))
        fault = CallFault("configuration" if "CERTIFICATE_VERIFY_FAILED" in message else "outage", message)
        raise WireError(fault) from error
