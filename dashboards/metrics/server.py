"""A small HTTP server for scrapes: it serves /metrics and changes nothing.

A web page can make a browser send requests to any address, including this machine (DNS rebinding). Such a request
carries the page's host name. So a request is answered only if its Host is an address of this machine or a name that
was allowed.
"""

import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import urlsplit

from dashboards.metrics.collector import Exposition
from fleet import __version__
from fleet.errors import FleetError, UsageError

DEFAULT_PORT, HIGHEST_PORT = 9464, 65_535
TIMEOUT_S = 10.0  # for a request to arrive, and for its answer to leave
MOST_CONNECTIONS = 8  # at the same time; more are closed at once
STOP_S = 0.1
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`127.0.0.1:9464`, `[::1]:9464`, `:9464` or `9464`: loopback unless a host is named. Raises `UsageError`."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    is_port = port.isascii() and port.isdecimal() and int(port) <= HIGHEST_PORT
    if not is_port or (host != "localhost" and _ip(host) is None):
        raise UsageError(f"{text!r} is not an address to listen on; write it like 127.0.0.1:{DEFAULT_PORT}")
    return Address(host, int(port))


@contextmanager
def serving(exposition: Exposition, address: Address, hosts: Collection[str] = ()) -> Iterator[Address]:
    """Answer scrapes while the block lasts, at the yielded address: port 0 chooses a free one. Raises `FleetError`."""
    try:
        server = _Server(exposition, address, hosts)
    except OSError as error:
        raise FleetError(
            f"can't serve metrics on {address}: {error.strerror}; choose another port, or 0 for a free one"
        ) from error
    thread = Thread(target=server.serve_forever, args=(STOP_S,), name="metrics", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, exposition: Exposition, address: Address, hosts: Collection[str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.exposition = exposition
        self._is_private = _is_loopback(address.host)
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._connections = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((address.host, address.port), _Handler)

    def may_answer(self, host: str) -> bool:
        """Whether a request with this Host header was meant for this server."""
        name = _host_name(host)
        if not name:
            return False
        if name in self._hosts or _is_loopback(name):
            return True
        return not self._is_private and _ip(name) is not None  # a page's host name can't be an address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that disconnects is not an error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S
    server_version, sys_version = f"fleet/{__version__}", ""

    def do_GET(self) -> None:
        status, content_type, page = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(page)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    do_HEAD = do_GET  # noqa: N815 - the name that the library looks for

    def _answer(self) -> tuple[int, str, bytes]:
        if not self.server.may_answer(self.headers.get("Host", "")):
            return 403, PLAIN, b"requests for this host are not answered; metrics.hosts allows more hosts\n"
        match self.path.partition("?")[0]:
            case "/metrics":
                page, content_type = self.server.exposition.scrape(self.headers.get("Accept", ""))
                return 200, content_type, page
            case "/":
                return 200, PLAIN, b"fleet: metrics for Prometheus are at /metrics\n"
            case _:
                return 404, PLAIN, b"not found; metrics are at /metrics\n"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log nothing: scrapes are too frequent."""


def _host_name(host: str) -> str:
    """The name or address in a Host header, without its port; empty if the header is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises if it is invalid
        is_valid = parts.netloc == host and parts.username is None
        return (parts.hostname or "").rstrip(".") if is_valid else ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    address = _ip(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
