"""From what a server said to what we do about it: pure tables, tried without a server."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agents.models.answer import CallFault, Counted, FaultKind, Headroom, Room

_SAID = 600  # characters of a server's message that are kept

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
_PASSING = frozenset({200, 408, 409, 425})
_SPENT = ("spend_limit", "credit", "billing")  # no wait mends these
_TOO_LONG = ("prompt is too long", "too many tokens", "exceed context limit", "context window")
_PASSES: frozenset[FaultKind] = frozenset({"limit", "outage"})
_COUNTED: dict[Counted, str] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}


def from_error(
    status: int,
    *,
    type_: str | None,
    code: str | None,
    message: str,
    headers: Mapping[str, str],
    now: datetime,
) -> CallFault:
    """The fault behind an error answer, or behind an error event in a stream (whose status is 200)."""
    kind = _kind(status, type_, message)
    if kind in _PASSES and any(word in (code or "") for word in _SPENT):
        kind = "refused"
    if kind in _PASSES and headers.get("x-should-retry", "").lower() == "false":
        kind = "other"
    return CallFault(
        kind=kind,
        message=f"{_title(status, type_)}: {shortened(message)}",
        status=status,
        retry_after_s=retry_after_s(headers, now=now) if kind in _PASSES else None,
        headroom=headroom(headers),
        request_id=headers.get("request-id"),
    )


def _title(status: int, type_: str | None) -> str:
    return f"HTTP {status} {type_ or ''}".rstrip() if status >= 400 else (type_ or "error in the stream")  # noqa: PLR2004 - HTTP


def _kind(status: int, type_: str | None, message: str) -> FaultKind:
    if status == 413 or (type_ == "invalid_request_error" and _is_too_long(message)):  # noqa: PLR2004 - HTTP's own
        return "too_long"
    if type_ in _TYPES:
        return _TYPES[type_]
    if status in _PASSING or status >= 500:  # noqa: PLR2004 - HTTP's own
        return "outage"
    return _STATUSES.get(status, "configuration")


def _is_too_long(message: str) -> bool:
    return any(phrase in message.lower() for phrase in _TOO_LONG)


def headroom(headers: Mapping[str, str]) -> Headroom:
    """What the rate-limit headers grant; a limit that is none is left out."""
    found: dict[Counted, Room] = {}
    for counted, name in _COUNTED.items():
        limit = _number(headers.get(f"anthropic-ratelimit-{name}-limit"))
        left = _number(headers.get(f"anthropic-ratelimit-{name}-remaining"))
        if limit and left is not None:
            found[counted] = Room(limit, left)
    return found


def shortened(message: str) -> str:
    """A server's words in one line of bounded length."""
    text = " ".join(message.split())
    return text if len(text) <= _SAID else f"{text[: _SAID - 1]}…"


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """The wait a server asks for, in seconds; None where it asks for none or for nonsense."""
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
