"""Holds messages against the official schema of the Agent Client Protocol, version 1.

`acp-v1.json` is `schema/v1/schema.json` of the npm package `@agentclientprotocol/sdk` 2.4.0 (Apache-2.0), unchanged.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator

Json = Mapping[str, Any]
Side = Literal["agent", "client"]
SCHEMA: dict[str, Any] = json.loads(Path(__file__).with_name("acp-v1.json").read_text())


@cache
def validator(definition: str) -> Draft202012Validator:
    """For what a message carries."""
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": SCHEMA["$defs"]})


@cache
def definitions() -> dict[tuple[str, str, str], str]:
    """The definition of what is sent to a side, by method, as its request or notification, or as its result."""
    found = {}
    for name, each in SCHEMA["$defs"].items():
        if "x-method" in each:
            part = "result" if name.endswith("Response") else "params"
            found[each["x-side"], each["x-method"], part] = name
    return found


@dataclass
class Ledger:
    """Every message of a connection, and what is wrong with them."""

    checked: int = 0
    violations: list[str] = field(default_factory=list)
    _asked: dict[tuple[str, object], str] = field(default_factory=dict)

    def take(self, to: Side, message: Json) -> None:
        """One message to the agent or to its client."""
        self.checked += 1
        number, method = message.get("id"), message.get("method")
        if message.get("jsonrpc") != "2.0":
            self.violations.append(f"no JSON-RPC: {message}")
        if method is not None:
            if "id" in message:
                self._asked[to, number] = method
            self._hold(to, method, "params", message.get("params"))
            return
        asked = self._asked.pop(("client" if to == "agent" else "agent", number), None)
        if asked is None:
            self.violations.append(f"an answer to nothing: {message}")
        elif "error" in message:
            self._explain("Error", message["error"])
        else:
            self._hold("client" if to == "agent" else "agent", asked, "result", message.get("result"))

    def _hold(self, side: str, method: str, part: str, value: object) -> None:
        definition = definitions().get((side, method, part))
        if definition is None:
            self.violations.append(f"{method} is not sent to the {side}")
        else:
            self._explain(definition, value)

    def _explain(self, definition: str, value: object) -> None:
        for error in validator(definition).iter_errors(value):
            self.violations.append(f"{definition}: {error.json_path}: {error.message[:300]}")
