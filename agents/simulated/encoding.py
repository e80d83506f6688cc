"""An answer as the Messages API puts it: one JSON document, or the events of a stream. No server, no socket."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agents.simulated.cache import PromptTokens, tokens
from agents.simulated.moves import Say, Text, ToolUse

PIECE = 400  # characters of an answer one event carries

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What an answer carries besides what is said."""

    id: str
    model: str
    prompt: PromptTokens


def error_body(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """An error in the service's shape."""
    fallback = "api_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004 - where server errors begin
    error = {"type": ERROR_TYPES.get(status, fallback), "message": message}
    return {"type": "error", "error": error, "request_id": request_id}


def message_body(say: Say, envelope: Envelope) -> dict[str, Any]:
    """The whole answer as one document."""
    content: list[dict[str, Any]] = [
        {"type": "text", "text": block.text}
        if isinstance(block, Text)
        else {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        for block in say.blocks
    ]
    body = _start(envelope)
    usage = body["usage"] | {"output_tokens": spoken_tokens(say)}
    return body | {"content": content, "stop_reason": say.stop_reason, "usage": usage}


def events(say: Say, envelope: Envelope) -> Iterator[bytes]:
    """The answer as server-sent events, one at a time."""
    yield event("message_start", {"message": _start(envelope)})
    yield event("ping", {})
    for index, block in enumerate(say.blocks):
        yield event("content_block_start", {"index": index, "content_block": _empty(block)})
        for delta in _deltas(block):
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    ending = {"stop_reason": say.stop_reason, "stop_sequence": None}
    yield event("message_delta", {"delta": ending, "usage": {"output_tokens": spoken_tokens(say)}})
    yield event("message_stop", {})


def event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def spoken_tokens(say: Say) -> int:
    return tokens(sum(len(_spoken(block)) for block in say.blocks))


def _spoken(block: Text | ToolUse) -> str:
    if isinstance(block, Text):
        return block.text
    return json.dumps(block.input, ensure_ascii=False) if block.broken is None else block.broken


def _start(envelope: Envelope) -> dict[str, Any]:
    prompt = envelope.prompt
    usage = {
        "input_tokens": prompt.input,
        "cache_creation_input_tokens": prompt.cache_write,
        "cache_read_input_tokens": prompt.cache_read,
        "output_tokens": 1,
    }
    return {
        "id": envelope.id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _empty(block: Text | ToolUse) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}


def _deltas(block: Text | ToolUse) -> Iterator[dict[str, str]]:
    spoken = _spoken(block)
    kind, field = ("text_delta", "text") if isinstance(block, Text) else ("input_json_delta", "partial_json")
    for start in range(0, len(spoken), PIECE):
        yield {"type": kind, field: spoken[start : start + PIECE]}
