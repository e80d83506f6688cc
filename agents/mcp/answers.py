"""What a server answers to a call, as text for a model. Pure: pictures, sound and files become a line about them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.mcp.catalog import plain

LONGEST = 1_000_000  # characters of one text that are looked at


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The result of a call, or why there is none."""

    text: str
    is_error: bool = False


def read_answer(result: Mapping[str, Any]) -> ServerAnswer:
    """The answer in a result that has the protocol's shape."""
    if result.get("resultType", "complete") != "complete":
        return ServerAnswer("The server asks for input of a person or of a model, which it does not get here.", True)
    parts = [_part(block) for block in result.get("content") or () if isinstance(block, dict)]
    text = "\n".join(part for part in parts if part)
    if not text and (structured := result.get("structuredContent")) is not None:
        text = json.dumps(structured, ensure_ascii=False)[:LONGEST]
    return ServerAnswer(text or "(nothing)", bool(result.get("isError")))


def _part(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))[:LONGEST]
        case "image" | "audio" as kind:
            return f"[{kind}, {len(str(block.get('data', '')))} characters, not shown]"
        case "resource_link":
            return f"[a resource: {plain(str(block.get('uri', ''))[:500])}]"
        case "resource":
            resource = block.get("resource")
            text = resource.get("text") if isinstance(resource, dict) else None
            return str(text)[:LONGEST] if text is not None else "[a resource, not text, not shown]"
        case _:
            return "[something that is not text, not shown]"
