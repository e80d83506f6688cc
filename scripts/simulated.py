"""Counts requests to a simulated model, and those that the real service would have rejected.

A demo, a chaos run or an evaluation fails if one of its requests breaks a rule of the service.
"""

import json
import re
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30.0
_LINE = re.compile(r"([\d,]+) requests to the simulated model, ([\d,]+) broke a rule")


@dataclass(frozen=True)
class Asked:
    """The requests that a simulated model got."""

    requests: int
    broken: Mapping[str, int]
    """Number of rejected requests, by error message."""
    struck: tuple[Mapping[str, Any], ...] = ()
    """The faults that it injected."""

    @property
    def line(self) -> str:
        return f"{self.requests:,} requests to the simulated model, {sum(self.broken.values()):,} broke a rule"

    @property
    def complaint(self) -> str:
        """Return an error message if a request broke a rule, otherwise an empty text."""
        return f"{self.line} of the model service: {dict(self.broken)}" if self.broken else ""


def asked(url: str) -> Asked:
    """Return the requests that the simulated model at this address has received so far."""
    with urllib.request.urlopen(f"{url}/troubles", timeout=TIMEOUT_S) as answer:  # noqa: S310 - on loopback
        troubles = json.load(answer)
    return Asked(troubles["requests"], troubles["broken"], tuple(troubles["struck"]))


def counted(lines: Iterable[str]) -> tuple[int, int]:
    """The requests that a program printed, and how many of them broke a rule."""
    found = [match for line in lines if (match := _LINE.search(line))]
    requests, broken = (sum(int(match[group].replace(",", "")) for match in found) for group in (1, 2))
    return requests, broken
