"""Which capability a refusal of the service names: the client leaves it out from there on.

A service that lacks one says so in an answer of 400. What it does not name is found by `fleet doctor --live`.
"""

import re

from agents.models.answer import CallFault
from fleet.core.base.capabilities import Capability

_SIGNS: dict[Capability, re.Pattern[str]] = {
    "diagnostics": re.compile(r"\bdiagnostics\b"),
    "effort": re.compile(r"\boutput_config\b|\beffort\b"),
    "cache_hour": re.compile(r"\bttl\b"),
    "cache": re.compile(r"\bcache_control\b"),
    "thinking": re.compile(r"\bthinking(\.(type|display|adaptive)|: )|\bdisplay\b|'adaptive'"),
    "streaming": re.compile(r"(?<!in the )\bstream(ing)?\b"),
    "built_in_tools": re.compile(r"\bbash_\d+|\btext_editor_\d+|\btools\.\d+\.type\b"),
    "strict_tools": re.compile(r"grammar|strict|schema"),
}
"""How a refusal names each; the narrower ones come first."""


def refused_capability(fault: CallFault, without: frozenset[Capability]) -> Capability | None:
    """The capability that a service refuses, of those that were asked for."""
    if fault.kind != "configuration":
        return None
    text = fault.message.lower()
    return next((name for name, sign in _SIGNS.items() if name not in without and sign.search(text)), None)
