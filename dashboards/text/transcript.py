"""A conversation as text: messages, tool calls and their results. All of it is untrusted."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dashboards.text.safe import safe, safe_block

LINES = 60  # of one message
PROGRAMS = ("output", "report")  # what a worker that is a program printed, and its report


def transcript_lines(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of the entries of a transcript file."""
    for entry in entries:
        yield from _entry_lines(entry)


def _entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    event, content = safe(entry.get("event", "?")), entry.get("content", entry.get("blocks"))
    if event == "user" and _is_results(content):
        event = "results"
    texts = [text for name in PROGRAMS if isinstance(text := entry.get(name), str) and text]
    shown_elsewhere = {"event", "content", "blocks", "tools", "system", *PROGRAMS}
    if event == "end":
        shown_elsewhere.add("value")  # the call that ended it is right above
    values = {name: _text(value) for name, value in entry.items() if name not in shown_elsewhere}
    details = "  ".join(f"{safe(name)}={safe(value, limit=120)}" for name, value in values.items())
    yield f"── {event}  {details}".rstrip()
    for text in texts:
        yield from _message_lines(text)
    if isinstance(content, str):
        yield from _message_lines(content)
    elif isinstance(content, list):
        for block in content:
            yield from _block_lines(block) if isinstance(block, dict) else _message_lines(str(block))


def _is_results(content: object) -> bool:
    """Whether a message consists of results of tools alone, which come under the role of the user."""
    if not isinstance(content, list) or not content:
        return False
    return all(isinstance(block, dict) and block.get("type") == "tool_result" for block in content)


def _block_lines(block: Mapping[str, Any]) -> Iterator[str]:
    match block.get("type"):
        case "text":
            yield from _message_lines(str(block.get("text", "")))
        case "tool_use":
            yield f"   → {safe(block.get('name'))}"
            arguments = block.get("input")
            if isinstance(arguments, dict):
                arguments = "\n".join(f"{name}: {_text(value)}" for name, value in arguments.items())
            yield from _message_lines(str(arguments))
        case "tool_result":
            yield f"   ← {'error' if block.get('is_error') else 'result'}"
            result = block.get("content")
            if isinstance(result, list):
                result = "\n".join(
                    str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in result
                )
            yield from _message_lines(str(result or ""))
        case "thinking" if str(block.get("thinking") or "").strip():  # the summary: what the model says
            yield "   thinks"
            yield from _message_lines(str(block["thinking"]))
        case "redacted_thinking":
            yield "   thinks (the service does not show what)"
        case kind:
            yield f"   ({safe(kind)})"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _message_lines(text: str) -> Iterator[str]:
    yield from (f"     {line}" for line in safe_block(text, lines=LINES).splitlines())
