"""JSON that others wrote, parsed to a bounded depth.

How deep `json.loads` goes depends on the version of Python: 3.11 stops at 1,000 levels, others parse more than our own
code, or `json.dumps`, can walk later.
"""

import json
from collections.abc import Iterable
from typing import Any

DEEPEST = 200  # levels; pydantic's parser stops there too


def parse_json(text: str | bytes | bytearray) -> Any:
    """The value in `text`. Raises `ValueError`, also if it is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _brackets(text) > DEEPEST and is_deep(value, DEEPEST):
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    return value


def is_deep(data: object, deepest: int) -> bool:
    """Whether tables and lists are nested in more than `deepest` levels."""
    level = [data]
    for _ in range(deepest):
        level = [item for value in level for item in _items(value)]
    return any(isinstance(value, dict | list) for value in level)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _brackets(text: str | bytes | bytearray) -> int:
    """An upper bound of the depth, at the price of two scans in C."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
