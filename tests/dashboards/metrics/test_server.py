"""The server for scrapes: who is answered, and with what."""

import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from dashboards.metrics.collector import Exposition
from dashboards.metrics.gauges import Picture
from dashboards.metrics.server import AT_ONCE, Address, parse_address, serving
from dashboards.metrics.tally import Tally
from fleet.errors import FleetError, UsageError

PICTURE = Picture(now=0, open=[], ended={})
LIMIT_S = 20


def exposition() -> Exposition:
    return Exposition(Tally(), lambda: None, lambda: PICTURE)


@pytest.fixture
def there() -> Iterator[Address]:
    with serving(exposition(), Address("127.0.0.1", 0), ["fleet.example"]) as address:
        yield address


def ask(there: Address, host: str | None, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes, str]:
    connection = HTTPConnection(there.host, there.port, timeout=LIMIT_S)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer: HTTPResponse = connection.getresponse()
        return answer.status, answer.read(), answer.headers["Content-Type"]
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1:9464", "localhost", "LOCALHOST:1", "[::1]:9464", "fleet.example:80"])
def test_a_scrape_that_means_us_is_answered(there: Address, host: str) -> None:
    status, page, content_type = ask(there, host)
    assert status == 200
    assert b"fleet_build" in page
    assert content_type.startswith("text/plain; version=")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "", None, "a@127.0.0.1", "10.0.0.1", "x/y", "["],
)
def test_a_page_that_points_its_name_at_us_gets_nothing(there: Address, host: str | None) -> None:
    status, page, _ = ask(there, host)
    assert status == 403
    assert b"fleet_" not in page


def test_where_it_listens_for_others_any_address_is_meant_but_no_name() -> None:
    with serving(exposition(), Address("0.0.0.0", 0)) as everywhere:  # noqa: S104 - that is what is tried
        there = Address("127.0.0.1", everywhere.port)
        assert ask(there, "10.0.0.1:9464")[0] == 200
        assert ask(there, "evil.example")[0] == 403


def test_it_listens_on_loopback_alone(there: Address) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    places = {row[1].split(":")[0] for row in listening if row[1].endswith(f":{there.port:04X}") and row[3] == "0A"}
    assert places == {"0100007F"}


def test_there_is_nothing_but_the_page(there: Address) -> None:
    assert ask(there, "localhost", "/")[0] == 200
    assert ask(there, "localhost", "/metrics/../../etc/passwd")[0] == 404
    assert ask(there, "localhost", method="POST")[0] == 501
    assert ask(there, "localhost", method="HEAD")[:2] == (200, b"")


def test_connections_that_say_nothing_do_not_pile_up(there: Address) -> None:
    idle = [socket.create_connection((there.host, there.port), timeout=LIMIT_S) for _ in range(AT_ONCE + 4)]
    try:
        refused = 0
        for connection in idle[AT_ONCE:]:
            refused += connection.recv(1) == b""
        assert refused == 4
    finally:
        for connection in idle:
            connection.close()


def test_a_port_that_is_taken_is_said_with_what_to_do(there: Address) -> None:
    with pytest.raises(FleetError, match="choose another port"), serving(exposition(), there):
        pass


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9464", "127.0.0.1", 9464),
        (":0", "127.0.0.1", 0),
        ("localhost:1", "localhost", 1),
        ("[::1]:9464", "::1", 9464),
        ("0.0.0.0:80", "0.0.0.0", 80),  # noqa: S104 - only read
    ],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", "x", "127.0.0.1", "example.org:80", "127.0.0.1:99999", "127.0.0.1:x", "::"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="write it like"):
        parse_address(text)
