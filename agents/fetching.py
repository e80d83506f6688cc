"""HTTP GET to hosts that the operator listed, made by the manager for a worker that has no network.

An address comes from a model, and a name may lead anywhere: the list decides what is asked, and the addresses that a
name really has decide what is connected to. A private address is asked only where it is listed as such.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

REDIRECTS = 5
LARGEST = 5 * 1024 * 1024
TIME_S = 60.0
_CHUNK = 64 * 1024
_URL = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?(/[!-~]*)?", re.ASCII)
"""Nothing that two parsers could read differently: no user, no backslash, no escapes in the host."""
_ENTRY = re.compile(r"(\*\.)?([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_LOCAL = "localhost"
_WRAPPED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))
"""Addresses that hold another one, which a gateway may connect to."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):  # noqa: N818 - an answer for the model
    """It was not asked, or what came is of no use; the message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """One entry of the list."""

    name: str
    port: int | None = None
    below: bool = False
    """Every name below this one, not itself."""

    def fits(self, name: str, port: int, scheme: str) -> bool:
        if (name.endswith(f".{self.name}") if self.below else name == self.name) is False:
            return False
        return port == (_PORTS[scheme] if self.port is None else self.port)


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer."""

    url: str
    status: int
    kind: str
    body: bytes


def read_host(entry: str) -> Host | None:
    """An entry of the list; None for one that is none."""
    found = _ENTRY.fullmatch(entry)
    return Host(found[2].lower().rstrip("."), int(found[3]) if found[3] else None, bool(found[1])) if found else None


def host_problem(hosts: Sequence[str]) -> str | None:
    """Why a list can't be used, for the operator."""
    if not hosts:
        return 'hosts: is missing; name whom it may ask, like ["docs.python.org", "*.example.org", "127.0.0.1:8080"]'
    wrong = next((entry for entry in hosts if read_host(entry) is None), None)
    return (
        None
        if wrong is None
        else f"hosts: {wrong!r} is no host; write a name, *.name or an address, and a port after it"
    )


async def fetch(url: str, hosts: Sequence[str]) -> Fetched:
    """Ask for `url`, following redirects within the list. Raises `Refused`."""
    listed = tuple(host for entry in hosts if (host := read_host(entry)) is not None)
    connector = aiohttp.TCPConnector(resolver=_Checked(listed), use_dns_cache=False, force_close=True)
    timeout = aiohttp.ClientTimeout(total=TIME_S)
    headers = {"user-agent": "fleet", "accept-encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, trust_env=False, auto_decompress=False, headers=headers
    ) as http:
        for _ in range(REDIRECTS + 1):
            _check(url, listed)
            try:
                answer = await _asked(http, url)
            except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
                why = "it took too long" if isinstance(error, TimeoutError) else str(error)
                raise Refused(f"{url} could not be fetched: {why}") from error
            if isinstance(answer, Fetched):
                return answer
            url = urljoin(url, answer)
    raise Refused(f"more than {REDIRECTS} redirects, the last one to {url}")


async def _asked(http: aiohttp.ClientSession, url: str) -> Fetched | str:
    """The answer, or where it sends us."""
    async with http.get(url, allow_redirects=False) as answer:
        location = answer.headers.get("location")
        if answer.status in {301, 302, 303, 307, 308} and location:
            return location
        body = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > LARGEST:
                raise Refused(f"{url} is larger than {LARGEST} bytes; ask for a part of it")
        return Fetched(url, answer.status, answer.content_type, bytes(body))


def _check(url: str, listed: Sequence[Host]) -> None:
    found = _URL.fullmatch(url)
    if found is None:
        raise Refused(f"{url[:200]!r} is no address that can be fetched; write http(s)://host/path, escaped")
    scheme, name = found[1], found[2].lower().rstrip(".")
    port = int(found[3]) if found[3] else _PORTS[scheme]
    if not any(host.fits(name, port, scheme) for host in listed):
        there = ", ".join(f"{'*.' * host.below}{host.name}{f':{host.port}' if host.port else ''}" for host in listed)
        raise Refused(f"{name}:{port} is not among the hosts that may be asked: {there}")


class _Checked(AbstractResolver):
    """Looks names up, and refuses those that lead to this machine or a network of its own."""

    def __init__(self, listed: Sequence[Host]) -> None:
        self._local = any(host.name == _LOCAL for host in listed)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        if not (host == _LOCAL and self._local) and not all(is_public(str(entry[4][0])) for entry in found):
            raise OSError(None, f"{host} leads to a private address; list the address itself if that is meant")
        return [
            ResolveResult(
                hostname=host,
                host=str(entry[4][0]),
                port=port,
                family=entry[0],
                proto=entry[2],
                flags=socket.AI_NUMERICHOST,
            )
            for entry in found
        ]

    async def close(self) -> None:
        """There is nothing to close."""


def is_public(text: str) -> bool:
    """Whether an address is one of the open network."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if any(address in network for network in _WRAPPED):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
