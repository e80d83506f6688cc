"""A small HTTP server for scrapes: /metrics, and nothing that changes anything.

A page in a browser can have it ask any address, this machine included; what gives such a page away is the name it had
to use. So a request is answered only when its Host is an address of this machine or a name that was allowed.
"""

import ipaddress
import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import urlsplit

from dashboards.metrics.collector import Exposition
from fleet import __version__
from fleet.ports import FleetError, UsageError

DEFAULT_PORT, HIGHEST_PORT = 9464, 65_535
PATIENCE_S = 10.0  # for a request to arrive, and for its answer to leave
AT_ONCE = 8  # connections; more are closed at once
STOP_S = 0.1
INDEX = b"fleet: its figures for Prometheus are at /metrics\n"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        return _is_loopback(self.host)


def parse_address(text: str) -> Address:
    """`127.0.0.1:9464`, `[::1]:9464`, `:9464` or `9464`: loopback unless a host is named. Raises `UsageError`."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    wrong = UsageError(f"{text!r} is no address to listen on: write it like 127.0.0.1:{DEFAULT_PORT}")
    if not (port.isascii() and port.isdecimal()) or int(port) > HIGHEST_PORT:
        raise wrong
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError as error:
            raise wrong from error
    return Address(host, int(port))


@contextmanager
def serving(exposition: Exposition, address: Address, hosts: Collection[str] = ()) -> Iterator[Address]:
    """Answer scrapes while the block lasts; where, since port 0 chooses a free one. Raises `FleetError`."""
    try:
        server = _Server(exposition, address, hosts)
    except OSError as error:
        raise FleetError(
            f"the metrics can't be served on {address}: {error.strerror}; choose another port, or 0 for a free one"
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
        self._loopback, self._hosts = address.loopback, frozenset(host.lower().rstrip(".") for host in hosts)
        self._places = BoundedSemaphore(AT_ONCE)
        super().__init__((address.host, address.port), _Handler)

    def allows(self, host: str | None) -> bool:
        """Whether a request that was addressed to `host` is meant for us."""
        name = _host_name(host or "")
        if name is None:
            return False
        if name == "localhost" or name in self._hosts or _is_loopback(name):
            return True
        return not self._loopback and _is_address(name)  # a name of a page's can't be an address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that went away in the middle is nobody's trouble
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE_S
    server_version, sys_version = f"fleet/{__version__}", ""

    def do_GET(self) -> None:
        page, content_type, status = self._page()
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

    def _page(self) -> tuple[bytes, str, int]:
        plain = "text/plain; charset=utf-8"
        if not self.server.allows(self.headers.get("Host")):
            return b"this is not the host you asked for; see metrics.hosts\n", plain, 403
        match self.path.partition("?")[0]:
            case "/metrics":
                page, content_type = self.server.exposition.scrape(self.headers.get("Accept", ""))
                return page, content_type, 200
            case "/":
                return INDEX, plain, 200
            case _:
                return b"only /metrics is here\n", plain, 404

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Scrapes are not worth a line."""


def _host_name(host: str) -> str | None:
    """The name or address in a Host header, without its port; None where it is no such thing."""
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return None if parts.path or parts.query or parts.fragment or parts.username or not name else name.rstrip(".")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
