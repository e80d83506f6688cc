"""What a request may ask for beyond the basics, and which of it a service has refused.

A service that lacks a feature says so in an answer of 400; then the client leaves it out from there on.
"""

import re
from typing import Literal

from agents.models.answer import CallFault

Feature = Literal["diagnostics", "effort", "hour", "thinking", "strict"]
"""Reasons for cache misses; effort; cache entries of an hour; summaries of thinking; strict tool schemas."""

_SIGNS: dict[Feature, re.Pattern[str]] = {
    "diagnostics": re.compile(r"\bdiagnostics\b"),
    "effort": re.compile(r"\boutput_config\b|\beffort\b"),
    "hour": re.compile(r"\bttl\b"),
    "thinking": re.compile(r"\bthinking(\.(type|display|adaptive)|: )|\bdisplay\b|'adaptive'"),
    "strict": re.compile(r"grammar|strict|schema"),
}
"""How a refusal names each feature."""


def refused_feature(fault: CallFault, without: frozenset[Feature]) -> Feature | None:
    """The feature that a service refuses, of those that were asked for."""
    if fault.kind != "configuration":
        return None
    text = fault.message.lower()
    return next((name for name, sign in _SIGNS.items() if name not in without and sign.search(text)), None)
