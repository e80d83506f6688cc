"""What a simulated service lacks: it refuses what asks for it, as a gateway does that knows an older API."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agents.simulated.rules.prompt import THINKING, as_blocks
from agents.simulated.rules.refusal import RequestError
from fleet.core.base.capabilities import Capability

_PARAMETERS: Mapping[str, Capability] = {
    "stream": "streaming",
    "diagnostics": "diagnostics",
    "output_config": "effort",
    "thinking": "thinking",
}
_UNKNOWN = "Extra inputs are not permitted"
TERSE = "The request could not be processed"
"""What a service says that does not name what it refuses."""


def check_lacking(data: Mapping[str, Any], lacks: Collection[Capability], *, terse: bool) -> None:
    """Raises `RequestError` for the first thing that a request asks for and the service lacks."""
    for capability, message in _asked_for(data):
        if capability in lacks:
            raise RequestError(TERSE if terse else message)


def _asked_for(data: Mapping[str, Any]) -> Iterator[tuple[Capability, str]]:
    """What a request asks for, and how it is refused."""
    if data.get("max_tokens") == 0:
        yield "keep_alive", "max_tokens: must be greater than or equal to 1"
    for parameter, capability in _PARAMETERS.items():
        if data.get(parameter):
            yield capability, f"{parameter}: {_UNKNOWN}"
    for path, block in _blocks(data):
        if (mark := block.get("cache_control")) is not None:
            if isinstance(mark, dict) and "ttl" in mark:
                yield "cache_hour", f"{path}.cache_control.ttl: {_UNKNOWN}"
            yield "cache", f"{path}.cache_control: {_UNKNOWN}"
        if block.get("type") in THINKING:
            yield "thinking_history", f"{path}: Input tag {block['type']!r} does not match any of the expected tags"
    for index, tool in enumerate(data.get("tools") or ()):
        if tool.get("type", "custom") != "custom":
            yield "built_in_tools", f"tools.{index}: Input tag {tool['type']!r} does not match any of the expected tags"
        if tool.get("strict"):
            yield "strict_tools", f"tools.{index}.custom.strict: {_UNKNOWN}"


def _blocks(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every block that may have a cache mark, with its path."""
    groups = {"system": as_blocks(data.get("system")), "tools": data.get("tools") or ()}
    for number, message in enumerate(data.get("messages") or ()):
        groups[f"messages.{number}.content"] = as_blocks(message.get("content"))
    for name, blocks in groups.items():
        for index, block in enumerate(blocks):
            yield f"{name}.{index}", block
