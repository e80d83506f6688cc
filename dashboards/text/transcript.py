"""A conversation as a person reads it: who said what, what was run, what came back. All of it is untrusted text."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dashboards.safe import safe, safe_block

LINES = 60  # of one message


def transcript_lines(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The entries of a transcript file, in order."""
    for entry in entries:
        yield from _entry(entry)


def _entry(entry: Mapping[str, Any]) -> Iterator[str]:
    event = safe(entry.get("event", "?"))
    content = entry.get("content", entry.get("blocks"))
    head = {
        name: value for name, value in entry.items() if name not in {"event", "content", "blocks", "tools", "system"}
    }
    details = "  ".join(f"{safe(name)}={safe(_short(value), limit=120)}" for name, value in head.items())
    yield f"── {event}  {details}".rstrip()
    if isinstance(content, str):
        yield from _block(content)
    elif isinstance(content, list):
        for block in content:
            yield from _part(block) if isinstance(block, dict) else _block(str(block))


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _part(block: Mapping[str, Any]) -> Iterator[str]:
    match block.get("type"):
        case "text":
            yield from _block(str(block.get("text", "")))
        case "tool_use":
            yield f"   → {safe(block.get('name'))}"
            yield from _block(_arguments(block.get("input")))
        case "tool_result":
            yield f"   ← {'error' if block.get('is_error') else 'result'}"
            yield from _block(_inner(block.get("content")))
        case kind:
            yield f"   ({safe(kind)})"


def _inner(content: object) -> str:
    """What a tool answered: text, or blocks of it."""
    if not isinstance(content, list):
        return str(content or "")
    return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)


def _arguments(arguments: object) -> str:
    if not isinstance(arguments, dict):
        return str(arguments)
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()
    )


def _block(text: str) -> Iterator[str]:
    for line in safe_block(text, lines=LINES).splitlines():
        yield f"     {line}"
