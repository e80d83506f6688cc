"""The server for scrapes: which requests are answered, and with what."""

import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from dashboards.address import Address, parse_address
from dashboards.metrics.counters import Tally
from dashboards.metrics.gauges import RunsSnapshot
from dashboards.metrics.server import MOST_CONNECTIONS, Exposition, serving
from fleet.errors import FleetError, UsageError

SNAPSHOT = RunsSnapshot(now=0, open=[], ended={})
LIMIT_S = 20


def exposition() -> Exposition:
    return Exposition(Tally(), lambda: None, lambda: SNAPSHOT)


@pytest.fixture
def server() -> Iterator[Address]:
    with serving(exposition(), Address("127.0.0.1", 0), ["fleet.example"]) as address:
        yield address


def ask(server: Address, host: str | None, path: str = "/metrics", method: str = "GET") -> tuple[int, bytes, str]:
    connection = HTTPConnection(server.host, server.port, timeout=LIMIT_S)
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
def test_a_scrape_for_an_allowed_host_is_answered(server: Address, host: str) -> None:
    status, page, content_type = ask(server, host)
    assert status == 200
    assert b"fleet_build" in page
    assert content_type.startswith("text/plain; version=")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "", None, "a@127.0.0.1", "10.0.0.1", "x/y", "["],
)
def test_a_page_whose_host_name_points_here_gets_nothing(server: Address, host: str | None) -> None:
    status, page, _ = ask(server, host)
    assert status == 403
    assert b"fleet_" not in page


def test_on_a_public_address_any_address_is_allowed_but_no_name() -> None:
    with serving(exposition(), Address("0.0.0.0", 0)) as everywhere:  # noqa: S104 - that is what is tried
        server = Address("127.0.0.1", everywhere.port)
        assert ask(server, "10.0.0.1:9464")[0] == 200
        assert ask(server, "evil.example")[0] == 403


def test_it_listens_on_loopback_alone(server: Address) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    places = {row[1].split(":")[0] for row in listening if row[1].endswith(f":{server.port:04X}") and row[3] == "0A"}
    assert places == {"0100007F"}


def test_only_the_page_is_served(server: Address) -> None:
    assert ask(server, "localhost", "/")[0] == 200
    assert ask(server, "localhost", "/metrics/../../etc/passwd")[0] == 404
    assert ask(server, "localhost", method="POST")[0] == 501
    assert ask(server, "localhost", method="HEAD")[:2] == (200, b"")


def test_idle_connections_do_not_pile_up(server: Address) -> None:
    idle = [socket.create_connection((server.host, server.port), timeout=LIMIT_S) for _ in range(MOST_CONNECTIONS + 4)]
    try:
        refused = 0
        for connection in idle[MOST_CONNECTIONS:]:
            refused += connection.recv(1) == b""
        assert refused == 4
    finally:
        for connection in idle:
            connection.close()


def test_a_taken_port_is_an_error_with_advice(server: Address) -> None:
    with pytest.raises(FleetError, match="choose another port"), serving(exposition(), server):
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
def test_an_invalid_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_address(text)


def test_a_supervisor_may_ask_whether_it_is_healthy(server: Address) -> None:
    status, page, _ = ask(server, f"127.0.0.1:{server.port}", "/-/healthy")
    assert (status, page) == (200, b"fleet is healthy\n")
    assert ask(server, "evil.example", "/-/healthy")[0] == 403
