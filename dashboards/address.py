"""The address of a server, and the Host headers that it accepts.

A web page can make a browser send requests to any address, including this machine (DNS rebinding). Such a request
carries the page's host name. A server therefore only answers requests whose Host is an address of this machine or an
allowed name.
"""

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from fleet.errors import UsageError

HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port to listen on."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)


def parse_address(text: str) -> Address:
    """Parse `127.0.0.1:9464`, `[::1]:9464`, `:9464` or `9464`. The default host is loopback. Raises `UsageError`."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    is_port = port.isascii() and port.isdecimal() and int(port) <= HIGHEST_PORT
    if not is_port or (host != "localhost" and _ip(host) is None):
        raise UsageError(f"{text!r} is not a valid address to listen on", hint="use HOST:PORT, such as 127.0.0.1:9464")
    return Address(host, int(port))


class AllowedHosts:
    """The Host headers that a server at an address accepts."""

    def __init__(self, address: Address, names: Collection[str] = ()) -> None:
        self._is_private = address.is_loopback
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def allows(self, host: str) -> bool:
        """Whether the server accepts this Host header."""
        name = _host_name(host)
        if not name:
            return False
        if name in self._names or _is_loopback(name):
            return True
        return not self._is_private and _ip(name) is not None  # the host name of a page can't be an IP address


def _host_name(host: str) -> str:
    """The name or address in a Host header, without its port. Empty if the header is invalid."""
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
