"""`fetch`: writes the response of an allowed host to a file. The manager sends the request, outside the sandbox.

URLs come from a model, and host names may resolve to any address. The list determines the allowed hosts, and resolved
addresses are checked before connecting. Private addresses are only allowed if they are listed explicitly.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from pydantic import Field

from agents.models.answer import Block
from agents.models.text import capped, well_formed
from agents.tools.tool import (
    PORTS,
    Arguments,
    ToolHost,
    ToolResult,
    WorkerTool,
    parse_arguments,
    read_host,
    strict_declaration,
)

REDIRECTS = 5
LARGEST = 5 * 1024 * 1024
TIME_S = 60.0
_SHOWN = 4_000  # characters of the response shown to the model
_OK = range(200, 300)
_CHUNK = 64 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_URL = re.compile(r"(https?)://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?(/[!-~]*)?", re.ASCII)
"""URLs that all parsers read the same way: without user, backslash or escapes in the host."""
_LOCAL = "localhost"
_WRAPPED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))
"""Networks whose addresses contain another address, to which a gateway may connect."""


class FetchArguments(Arguments):
    url: str = Field(min_length=1, max_length=2_000, description="The address: http(s)://host/path.")
    path: str = Field(min_length=1, description="The file of the worktree to which the response is written.")


class Fetch(WorkerTool):
    """Fetches from hosts listed by the operator."""

    name: ClassVar = "fetch"

    @property
    def declaration(self) -> Block:
        description = (
            f"Requests one address with HTTP GET and writes the response to a file, at most {LARGEST} bytes. "
            "Redirects are followed. Only these hosts are allowed: " + ", ".join(self.options.hosts)
        )
        return strict_declaration(self.name, description, FetchArguments)

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        arguments = parse_arguments(FetchArguments, raw)
        try:
            response = await fetch(arguments.url, self.options.hosts)
        except FetchError as error:
            return ToolResult(str(error), is_error=True)
        title = f"{response.url}: status {response.status}, {response.kind}, {len(response.body)} bytes"
        beginning = capped(well_formed(response.body[: 4 * _SHOWN].decode("utf-8", "replace")), _SHOWN)
        if response.status not in _OK:
            return ToolResult(f"{title}. The response was not written.\n{beginning}", is_error=True)
        await self.workspace.write(arguments.path, response.body)
        return ToolResult(f"{title}, written to {arguments.path}. First characters:\n{beginning}")


class FetchError(Exception):
    """A request that was not sent, or whose response is unusable. The message is for the model."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response."""

    url: str
    status: int
    kind: str
    body: bytes


async def fetch(
    url: str, hosts: Sequence[str], *, time_s: float = TIME_S, resolver: AbstractResolver | None = None
) -> Fetched:
    """GET `url`, following redirects within the list. Raises `FetchError`.

    The `resolver` resolves names. The default is that of the machine.
    """
    listed = tuple(host for entry in hosts if (host := read_host(entry)) is not None)
    public = _PublicResolver(resolver or ThreadedResolver(), listed)
    connector = aiohttp.TCPConnector(resolver=public, use_dns_cache=False, force_close=True)
    timeout = aiohttp.ClientTimeout(total=time_s)
    headers = {"user-agent": "fleet", "accept-encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, trust_env=False, auto_decompress=False, headers=headers
    ) as http:
        for _ in range(REDIRECTS + 1):
            _check(url, listed)
            try:
                result = await _get(http, url)
            except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
                why = "timeout" if isinstance(error, TimeoutError) else str(error)
                raise FetchError(f"{url} could not be fetched: {why}") from error
            if isinstance(result, Fetched):
                return result
            url = urljoin(url, result)
    raise FetchError(f"more than {REDIRECTS} redirects, the last one to {url}")


async def _get(http: aiohttp.ClientSession, url: str) -> Fetched | str:
    """Return the response, or the URL that it redirects to."""
    async with http.get(url, allow_redirects=False) as response:
        location = response.headers.get("location")
        if response.status in _REDIRECTS and location:
            return location
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > LARGEST:
                raise FetchError(f"{url} is larger than {LARGEST} bytes. Request a part of it.")
        return Fetched(url, response.status, response.content_type, bytes(body))


def _check(url: str, listed: Sequence[ToolHost]) -> None:
    match = _URL.fullmatch(url)
    if match is None:
        raise FetchError(f"{url[:200]!r} is not a supported URL. Use an escaped URL such as https://host/path.")
    scheme, name = match[1], match[2].lower().rstrip(".")
    port = int(match[3]) if match[3] else PORTS[scheme]
    if not any(host.matches(name, port, scheme) for host in listed):
        raise FetchError(f"{name}:{port} is not among the allowed hosts: {', '.join(host.entry for host in listed)}")


class _PublicResolver(AbstractResolver):
    """Rejects names that resolve to this machine or a private network."""

    def __init__(self, resolver: AbstractResolver, listed: Sequence[ToolHost]) -> None:
        self._resolver = resolver
        self._local = any(host.name == _LOCAL for host in listed)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host, port, family)
        if not (host == _LOCAL and self._local) and not all(is_public(each["host"]) for each in addresses):
            raise OSError(
                None, f"{host} resolves to a private address. To allow it, the operator has to list that address"
            )
        return addresses

    async def close(self) -> None:
        await self._resolver.close()


def is_public(text: str) -> bool:
    """Whether an address is public."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if any(address in network for network in _WRAPPED):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
