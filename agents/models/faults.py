"""Classifies what a server answered. Pure tables, tested without a server."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agents.models.answer import CallFault, FaultKind, Quota, QuotaKind, Quotas
from fleet.core.base.usage import Capability

_LONGEST = 600  # characters of a server's message that are kept

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
"""What a refusal names that is a matter of one conversation: its messages."""
_TOO_LONG = ("prompt is too long", "too many tokens", "exceed context limit", "context window")
_TRANSIENT: frozenset[FaultKind] = frozenset({"limit", "outage"})
_QUOTAS: dict[QuotaKind, str] = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}


def fault_of(status: int, document: object, headers: Mapping[str, str], *, default: str, now: datetime) -> CallFault:
    """The fault that an error response names, or an error event in a stream (whose status is 200)."""
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
    """What the rate-limit headers grant; a quota without numbers is left out."""
    quotas: dict[QuotaKind, Quota] = {}
    for kind, name in _QUOTAS.items():
        limit = _number(headers.get(f"anthropic-ratelimit-{name}-limit"))
        remaining = _number(headers.get(f"anthropic-ratelimit-{name}-remaining"))
        if limit and remaining is not None:
            quotas[kind] = Quota(limit, remaining)
    return quotas


def one_line(message: str) -> str:
    """A server's message as one line of bounded length."""
    text = " ".join(message.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """The wait a server asks for, in seconds; None if it names none that makes sense."""
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
# Which capability a refusal of the service names: the client leaves it out from there on.
#
# A service that lacks one says so in an answer of 400. What it does not name is found by `fleet doctor --live`.


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
"""How a refusal names each; the narrower ones come first."""


def refused_capability(fault: CallFault, without: frozenset[Capability]) -> Capability | None:
    """The capability that a service refuses, of those that were asked for."""
    if fault.kind != "configuration":
        return None
    text = fault.message.lower()
    return next((name for name, sign in _SIGNS.items() if name not in without and sign.search(text)), None)
