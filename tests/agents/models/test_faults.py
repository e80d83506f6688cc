"""What a server asks for, and what we make of it."""

from datetime import UTC, datetime

import pytest

from agents.models.exchange import fault_of, retry_after_s

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "2592000"}, 2_592_000.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 2099 12:00:00 GMT"}, 2_303_683_200.0),
    ],
)
def test_the_wait_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, now=NOW) == seconds


def test_waiting_does_not_help_against_a_spend_limit() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    document = {"error": {"type": "rate_limit_error", "message": "spent", "details": details}}
    fault = fault_of(429, document, {}, default="", now=NOW)
    assert (fault.kind, fault.status) == ("refused", 429)


def test_the_message_of_a_server_becomes_one_short_line() -> None:
    fault = fault_of(500, {"error": {"message": "a\nb " * 1000}}, {}, default="", now=NOW)
    assert "\n" not in fault.message
    assert len(fault.message) < 700


@pytest.mark.parametrize("document", [None, "<html>", [], {}, {"error": "no"}, {"error": {"message": 5}}])
def test_a_document_without_a_message_gets_the_default_one(document: object) -> None:
    fault = fault_of(502, document, {}, default="Bad gateway", now=NOW)
    assert (fault.kind, fault.message) == ("outage", "HTTP 502: Bad gateway")
