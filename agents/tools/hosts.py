"""The list of hosts a worker may fetch from. Pure: no name is looked up here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

PORTS = {"http": 80, "https": 443}
_ENTRY = re.compile(r"(\*\.)?([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Host:
    """One entry of the list."""

    entry: str
    name: str
    port: int | None
    below: bool
    """Every name below this one, but not the name itself."""

    def matches(self, name: str, port: int, scheme: str) -> bool:
        same = name.endswith(f".{self.name}") if self.below else name == self.name
        return same and port == (PORTS[scheme] if self.port is None else self.port)


def read_host(entry: str) -> Host | None:
    """An entry of the list; None if it is malformed."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return None
    return Host(entry, match[2].lower().rstrip("."), int(match[3]) if match[3] else None, bool(match[1]))


def host_problem(hosts: Sequence[str]) -> str | None:
    """Why a list can't be used, for the operator."""
    if not hosts:
        return 'hosts: is missing; list the hosts it may ask, like ["docs.python.org", "*.example.org", "127.0.0.1:80"]'
    wrong = next((entry for entry in hosts if read_host(entry) is None), None)
    if wrong is None:
        return None
    return f"hosts: {wrong!r} is not a host; write a name, *.name or an address, with a port if needed"
