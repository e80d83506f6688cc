"""The client of the model service. It loads the SDK on its first call, which runs without models never make."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import anyio

from agents.models.access import Access, missing_extra
from agents.models.answer import Answer, CallFault, OnBegin, Request, parameters_of
from agents.models.exchange import Exchange, Response, Timeouts, WireError, json_object, one_line, refused_capability
from agents.models.prices import ModelLimits
from fleet.core.base.usage import USES, Capability
from fleet.errors import UsageError

if TYPE_CHECKING:
    from agents.models.claude import Claude


Reported = TypeVar("Reported")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_PROBE_S = 5.0
_LONGEST_HEAD = 16_384
_LABEL = b"x-simulated-model"


class Client:
    """Sends requests to the Messages API, and forwards requests of other agents."""

    def __init__(self, stack: AsyncExitStack, access: Access, timeouts: Timeouts) -> None:
        self._stack, self._access, self._timeouts = stack, access, timeouts
        self._lock = anyio.Lock()
        self._claude: Claude | None = None
        self._refused: frozenset[Capability] = frozenset()
        self._warnings: list[str] = []

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        """Make a call. Every error is returned as a `CallFault`."""
        while True:
            without = self.lacking(request.model)
            result = await self.ask_without(request, on_begin, without)
            if not isinstance(result, CallFault) or not self.learn(result, without, warm=not request.max_tokens):
                return result

    def learn(self, fault: CallFault, without: frozenset[Capability], *, warm: bool) -> bool:
        """Record the capability that a fault names as missing. Return whether to repeat the call without it.

        No capability is essential, because the tools' parsers check their input anyway.
        """
        if warm and _refuses_no_answer(fault):
            self._leave_out("keep_alive")
        refused = refused_capability(fault, without)
        if refused is not None:
            self._leave_out(refused)
        return refused is not None

    def _leave_out(self, capability: Capability) -> None:
        if capability not in self._refused:
            self._refused |= {capability}
            self._warnings.append(
                f"the model service rejected {USES[capability]}, so fleet does not use it in further requests. "
                f'To skip this check, set models.without = ["{capability}"].'
            )

    def take_warnings(self) -> list[str]:
        """Return new warnings about the service."""
        warnings, self._warnings = self._warnings, []
        return warnings

    async def ask_without(
        self, request: Request, on_begin: OnBegin, without: frozenset[Capability]
    ) -> Answer | CallFault:
        """Send a request without these capabilities."""
        timeouts = self._timeouts
        try:
            claude = await self._opened()
        except WireError as error:
            return error.fault
        if "streaming" in without:  # no data arrives before the answer is complete
            timeouts = replace(timeouts, silence_s=timeouts.call_s)
        exchange = Exchange(timeouts, on_begin, self.redact)
        with exchange.receiving():
            await claude.send(request, exchange, without=without)
        return exchange.result()

    def lacks(self, model: str, capability: Capability) -> bool:
        """Whether the service lacks a capability, by configuration or because it was rejected."""
        return capability in self.lacking(model)

    def lacking(self, model: str) -> frozenset[Capability]:
        """Return the capabilities that the service of a model lacks."""
        return self._access.lacking(model) | self._refused

    async def limits(self, model: str) -> ModelLimits | None:
        """Return the limits of a model as reported by the service, or None."""
        reported = None if self.lacks(model, "models") else await self.reported_limits(model)
        return reported if isinstance(reported, ModelLimits) else None

    async def reported_limits(self, model: str) -> ModelLimits | CallFault:
        """Return the limits of a model as reported by the service, or a fault."""
        try:
            return self._redact(await (await self._opened()).limits(model))
        except WireError as error:
            return error.fault

    async def count(self, request: Request, without: frozenset[Capability]) -> int | CallFault:
        """Count the tokens of a prompt with the service."""
        return self._redact(await (await self._opened()).count(request, without))

    # ---- batches

    async def send_batch(self, requests: Mapping[str, Request]) -> str | CallFault:
        """Send requests, by unique ids, as a batch. Return the name of the batch."""
        if any(self.lacks(request.model, "batches") for request in requests.values()):
            return CallFault("other", "the service does not support batches (models.without)", status=404)
        sent = [{"custom_id": id_, "params": parameters_of(each, self._alone(each))} for id_, each in requests.items()]
        told = await self._about_batches("POST", "", {"requests": sent})
        return told if isinstance(told, CallFault) else str(told.get("id", ""))

    def _alone(self, request: Request) -> frozenset[Capability]:
        """Return the capabilities to leave out of a one-off request, whose prompt is not cached."""
        alone: frozenset[Capability] = frozenset({"cache", "diagnostics"})
        return self.lacking(request.model) | alone

    async def batch(self, batch: str) -> "BatchStatus | CallFault":
        """Return the status of a batch."""
        found = await self._about_batches("GET", f"/{quote(batch, safe='')}")
        return found if isinstance(found, CallFault) else _status(found)

    async def batches_since(self, since: float) -> "list[BatchStatus] | CallFault":
        """Return those of the latest hundred batches that were sent at this time or later."""
        listed = await self._about_batches("GET", "?limit=100")
        if isinstance(listed, CallFault):
            return listed
        data = listed.get("data")
        found = [_status(each) for each in data if isinstance(each, dict)] if isinstance(data, list) else []
        return [batch for batch in found if batch.sent_at >= since - SKEW_S]

    async def batch_results(self, batch: str) -> dict[str, Answer | CallFault] | CallFault:
        """Return the answers of a finished batch, by request id."""
        try:
            lines = await (await self._opened()).batch_results(batch, self._timeouts.call_s)
        except WireError as error:
            return replace(error.fault, message=self.redact(error.fault.message))
        return {str(line.get("custom_id", "")): self._answer_in(line) for line in map(json_object, lines)}

    def _answer_in(self, line: Mapping[str, Any]) -> Answer | CallFault:
        """Parse a line of a batch's results."""
        result = line.get("result")
        if not isinstance(result, dict) or result.get("type") != "succeeded":
            what = str(result.get("type")) if isinstance(result, dict) else "nothing"
            return CallFault("other", one_line(f"the batch does not contain an answer to the request: {what}"))
        exchange = Exchange(self._timeouts, lambda _: None, self.redact)
        exchange.feed_document(json.dumps(result.get("message")).encode())
        return exchange.result()

    async def _about_batches(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | CallFault:
        try:
            claude = await self._opened()
            return json_object(await claude.about_batches(method, path, body, self._timeouts.call_s))
        except WireError as error:
            return replace(error.fault, message=self.redact(error.fault.message))

    def _redact(self, reported: Reported) -> Reported | CallFault:
        if isinstance(reported, CallFault):
            return replace(reported, message=self.redact(reported.message))
        return reported

    @asynccontextmanager
    async def forward(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Response]:
        """Forward a request with the key added. Raises `WireError`, also if it takes too long."""
        claude, limit_s = await self._opened(), self._timeouts.call_s
        with anyio.move_on_after(limit_s) as limit:
            async with claude.forward(path, body, headers) as response:
                yield response
        if limit.cancelled_caught:
            raise WireError(CallFault("outage", f"not finished after {limit_s:g} s"))

    def redact(self, text: str) -> str:
        """Redact the key and other secrets."""
        for secret in (*self._access.secrets, *(self._claude.sent.latest if self._claude else ())):
            text = text.replace(secret, "[key]")
        return text

    async def _opened(self) -> "Claude":
        async with self._lock:
            if self._claude is None:
                from agents.models.claude import open_claude  # noqa: PLC0415 - the SDK takes a second to import

                claude = open_claude(self._access, self._timeouts)
                self._claude = await self._stack.enter_async_context(claude)
            return self._claude


@asynccontextmanager
async def open_client(access: Access, timeouts: Timeouts) -> AsyncIterator[Client]:
    """Open a client, which is closed after the block. Raises `UsageError` for an invalid address."""
    if problem := missing_extra(access.kind):
        raise UsageError(problem)
    if not _is_usable(access.base_url) and (access.base_url or access.kind == "api"):
        raise UsageError(
            f"models.base_url {access.base_url!r} is not a valid URL",
            hint="use a URL such as https://api.anthropic.com",
        )
    async with AsyncExitStack() as stack:
        yield Client(stack, access, timeouts)


def _refuses_no_answer(fault: CallFault) -> bool:
    """Whether a cache-only request was rejected because it requests no tokens."""
    return fault.kind == "configuration" and "max_tokens" in fault.message


def _is_usable(base_url: str) -> bool:
    try:
        url = urlsplit(base_url)
        host = (url.hostname or "").encode("idna")
        return bool(host) and base_url.isprintable() and url.scheme in {"http", "https"} and url.port != 0
    except ValueError:  # a malformed host or port
        return False


async def is_simulated(base_url: str, *, limit_s: float = _PROBE_S) -> bool:
    """Whether a service on this machine declares itself simulated. Other hosts are never contacted."""
    if urlsplit(base_url).hostname not in _LOOPBACK:
        return False
    with anyio.move_on_after(limit_s):  # for the full request: some services send a byte per second
        try:
            return _LABEL in await _headers(base_url)
        except (OSError, ValueError, anyio.EndOfStream, anyio.BrokenResourceError):
            return False
    return False


async def _headers(base_url: str) -> set[bytes]:
    """Return the header names of `/healthz`, in lower case. Does not load the SDK, because every run does this."""
    url = urlsplit(base_url)
    is_tls = url.scheme == "https"
    port = url.port or (443 if is_tls else 80)
    stream = await anyio.connect_tcp(url.hostname or "", port, tls=True) if is_tls else None
    async with stream or await anyio.connect_tcp(url.hostname or "", port) as connection:
        path = quote(f"{url.path.rstrip('/')}/healthz")
        await connection.send(
            f"GET {path} HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\nConnection: close\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _LONGEST_HEAD:
            head += await connection.receive()
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return {line.partition(b":")[0].strip().lower() for line in lines}


# ---- batches ---------------------------------------------------------------------------------------------------------
# Batches: the service answers their requests within a day, at half the price.


SKEW_S = 300.0  # the largest expected difference between the service's clock and the local one


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """The status of a batch."""

    id: str
    requests: int
    sent_at: float
    has_ended: bool


def _status(document: Mapping[str, object]) -> BatchStatus:
    counts = document.get("request_counts")
    numbers = [number for number in counts.values() if isinstance(number, int)] if isinstance(counts, dict) else []
    return BatchStatus(
        id=str(document.get("id", "")),
        requests=sum(numbers),
        sent_at=_time(document.get("created_at")),
        has_ended=document.get("processing_status") == "ended",
    )


def _time(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
