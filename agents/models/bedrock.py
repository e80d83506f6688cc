"""Amazon Bedrock: the SDK's client, which signs requests, and the event streams of answers.

Credentials are found by boto3. The only user of botocore, imported only if the configuration uses Bedrock.
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

from anthropic import AsyncAnthropicBedrock
from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError
from botocore.exceptions import BotoCoreError

from agents.models.access import Access, Platform
from agents.models.answer import CallFault
from agents.models.exchange import one_line
from fleet.core.base.output import parse_json

_TYPES = {
    "throttling": "rate_limit_error",
    "servicequotaexceeded": "rate_limit_error",
    "validation": "invalid_request_error",
    "accessdenied": "permission_error",
    "unrecognizedclient": "authentication_error",
    "expiredtoken": "authentication_error",
    "resourcenotfound": "not_found_error",
    "modeltimeout": "timeout_error",
    "modelnotready": "overloaded_error",
    "serviceunavailable": "overloaded_error",
    "modelstreamerror": "api_error",
    "modelerror": "api_error",
    "internalserver": "api_error",
}
"""Bedrock's exceptions, with their names in the Messages API."""


def bedrock(access: Access, **options: Any) -> Platform:
    """Create the platform for Bedrock. Raises `ValueError` if no region is found."""
    client = AsyncAnthropicBedrock(
        aws_region=access.region or None, base_url=access.base_url or None, default_headers=access.headers, **options
    )
    errors = (ParserError, BotoCoreError, RuntimeError, ValueError)
    return Platform(client, lambda: EventStream().decode, error_document, errors, fault_of)


class EventStream:
    """Decodes the messages of an answer: binary frames, with events as base64 in JSON."""

    def __init__(self) -> None:
        self._buffer = EventStreamBuffer()

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        self._buffer.add_data(chunk)
        for message in self._buffer:
            yield b"data: " + _event(message) + b"\n"


def _event(message: EventStreamMessage) -> bytes:
    """Return the event in a message on one line. Exceptions become errors of the Messages API."""
    headers = {name: str(value) for name, value in message.headers.items()}
    payload = _object(message.payload)
    if headers.get(":message-type") != "event":
        name = headers.get(":exception-type") or headers.get(":error-code") or ""
        text = payload.get("message") or headers.get(":error-message") or name
        return json.dumps({"type": "error", **_error(name, text)}).encode()
    try:
        return json.dumps(_object(b64decode(payload.get("bytes", ""), validate=True))).encode()
    except (TypeError, binascii.Error):
        return b"null"


def error_document(document: object, headers: Mapping[str, str]) -> object:
    name = headers.get("x-amzn-errortype", "").partition(":")[0]
    text = document.get("message") or document.get("Message") if isinstance(document, Mapping) else None
    return _error(name, text) if name or text else document


def _error(name: str, text: object) -> dict[str, dict[str, str]]:
    type_ = _TYPES.get(name.lower().removesuffix("exception"), "")
    return {"error": {"type": type_, "message": f"{name}: {text}" if name else str(text)}}


def fault_of(error: Exception) -> CallFault | None:
    if isinstance(error, ParserError | UnicodeDecodeError):
        return CallFault("outage", one_line(f"the answer is not an event stream of Bedrock: {error}"))
    if isinstance(error, ValueError):  # the model name does not form a valid path
        return CallFault("configuration", one_line(f"the request can't be sent: {error}"))
    if isinstance(error, RuntimeError) and "credentials" not in str(error):
        return None
    return CallFault("refused", one_line(f"no AWS credentials: {type(error).__name__}: {error}"))


def _object(data: bytes | str) -> dict[str, Any]:
    try:
        value = parse_json(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
