"""Where a server listens, and which requests are meant for it.

A web page can make a browser send requests to any address, including this machine (DNS rebinding). Such a request
carries the page's host name. So a request is answered only if its Host is an address of this machine or a name that
was allowed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from fleet.errors import UsageError

HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return _is_loopback(self.host)


def parse_address(text: str) -> Address:
    """`127.0.0.1:9464`, `[::1]:9464`, `:9464` or `9464`: loopback unless a host is named. Raises `UsageError`."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    is_port = port.isascii() and port.isdecimal() and int(port) <= HIGHEST_PORT
    if not is_port or (host != "localhost" and _ip(host) is None):
        raise UsageError(f"{text!r} is not an address to listen on; write it like 127.0.0.1:9464")
    return Address(host, int(port))


class AllowedHosts:
    """Which Host headers a server at an address answers."""

    def __init__(self, address: Address, names: Collection[str] = ()) -> None:
        self._is_private = address.is_loopback
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def allows(self, host: str) -> bool:
        """Whether a request with this Host header was meant for the server."""
        name = _host_name(host)
        if not name:
            return False
        if name in self._names or _is_loopback(name):
            return True
        return not self._is_private and _ip(name) is not None  # a page's host name can't be an address


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
