"""What a server asks for, and what we make of it."""

from datetime import UTC, datetime

import pytest

from agents.models.faults import from_error, retry_after_s

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


def test_a_spent_budget_is_no_matter_of_waiting() -> None:
    fault = from_error(
        429, type_="rate_limit_error", code="enforced_spend_limit_reached", message="spent", headers={}, now=NOW
    )
    assert (fault.kind, fault.status) == ("refused", 429)


def test_a_servers_words_are_one_short_line() -> None:
    fault = from_error(500, type_=None, code=None, message="a\nb " * 1000, headers={}, now=NOW)
    assert "\n" not in fault.message
    assert len(fault.message) < 700
