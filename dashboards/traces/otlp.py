"""Spans in OpenTelemetry's protocol: JSON over HTTP, which every collector takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from dashboards.text.safe import safe
from dashboards.traces.spans import Span, Spans, Value
from fleet import __version__
from fleet.core.history.follower import SLICE, FactSource
from fleet.errors import FleetError, UsageError

AT_ONCE = 500  # spans of one request
SEND_S = 10.0
PATH = "/v1/traces"
SHOWN = 200


def collector_address(text: str) -> str:
    """Where to send to. Raises `UsageError`."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageError(f"--otlp {text}: is not the address of a collector", hint="such as http://127.0.0.1:4318")
    return text if parts.path.strip("/") else f"{text.rstrip('/')}{PATH}"


def as_document(spans: Sequence[Span], run: str) -> dict[str, Any]:
    """The body of a request."""
    about = _attributes({"service.name": "fleet", "service.version": __version__, "fleet.run": run})
    scope = {"scope": {"name": "fleet", "version": __version__}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": [scope]}]}


async def send(url: str, spans: Sequence[Span], run: str) -> None:
    """Raises `FleetError` if the collector does not take them."""
    import aiohttp  # noqa: PLC0415 - slow to import

    timeout = aiohttp.ClientTimeout(total=SEND_S)
    headers = {"content-type": "application/json", "user-agent": "fleet"}
    try:
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as http:
            for first in range(0, len(spans), AT_ONCE):
                body = json.dumps(as_document(spans[first : first + AT_ONCE], run))
                async with http.post(url, data=body.encode(), headers=headers, allow_redirects=False) as answer:
                    if answer.status != 200:  # noqa: PLR2004 - the only success of the protocol
                        said = safe((await answer.content.read(SHOWN)).decode("utf-8", "replace"), limit=SHOWN)
                        raise FleetError(f"the collector refuses traces: HTTP {answer.status} {said}".rstrip())
    except TimeoutError:
        raise FleetError(f"the collector gives no answer within {SEND_S:g} s: {url}") from None
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        raise FleetError(f"the collector is not reached: {safe(str(error), limit=SHOWN)}") from None


def _span(span: Span) -> dict[str, Any]:
    status = {"status": {"code": 2, "message": span.error}} if span.error else {}
    return {
        "traceId": span.trace,
        "spanId": span.id,
        **({"parentSpanId": span.parent} if span.parent else {}),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(round(span.start * 1e9)),
        "endTimeUnixNano": str(round(span.end * 1e9)),
        "attributes": _attributes(span.attributes),
        **status,
    }


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": value}


# ---- exporter --------------------------------------------------------------------------------------------------------
# Sends the spans of a run to a collector while it works, each once it is over.
#
# Where it is in the journal is kept beside it. After a crash the spans since then are sent again: they are the same.


POSITION = "traces.position"
POLL_S, RETRY_S = 1.0, 10.0


@dataclass(slots=True)
class TraceExporter:
    """The traces of one run."""

    url: str
    run: str
    source: FactSource
    position: Path
    """The file with the number of the last fact whose spans have arrived."""
    complain: Callable[[str], None]
    """Called once when the collector can't be reached, and again after it could."""
    _spans: Spans = field(default_factory=Spans)
    _read: int = 0
    _sent: int = -1
    _waiting: list[Span] = field(default_factory=list)
    _is_down: bool = False

    async def watch(self) -> None:
        while True:
            arrived = await self.flush()
            await anyio.sleep(POLL_S if arrived else RETRY_S)

    async def flush(self) -> bool:
        """Send what is over. False if the collector does not take it: it is tried again, and nothing more is read."""
        if self._sent < 0:
            self._sent = self._kept()
        while True:
            facts = [] if len(self._waiting) >= AT_ONCE else self.source.facts(self._read, SLICE)
            for seq, fact in facts:
                found = self._spans.take(seq, fact)
                self._read = seq
                if seq > self._sent:
                    self._waiting += found
            if len(facts) == SLICE and len(self._waiting) < AT_ONCE:
                continue
            if not self._waiting:
                return True
            try:
                with anyio.CancelScope(shield=True):  # what is cut off may have arrived, and would be sent twice
                    await send(self.url, self._waiting, self.run)
                    self._waiting.clear()
                    self._keep()
            except FleetError as error:
                if not self._is_down:
                    self.complain(f"{error}; it is tried again")
                self._is_down = True
                return False
            self._is_down = False

    def _kept(self) -> int:
        with suppress(OSError, ValueError):
            return int(self.position.read_text(encoding="ascii"))
        return 0

    def _keep(self) -> None:
        """Losing it costs time: everything is sent again."""
        self._sent = self._read
        with suppress(OSError):
            self.position.write_text(f"{self._read}", encoding="ascii")
