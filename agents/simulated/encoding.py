"""Encodes answers in the format of the Messages API: a JSON document, or the events of a stream. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from agents.simulated.admission import Admitted
from agents.simulated.behaviours import BehaviourMessage, Block, Redacted, Text, Thinking, ToolUse
from agents.simulated.prompt import CHARACTERS_PER_TOKEN, PromptTokens, tokens
from agents.simulated.rules import sign, signed_id

# ---- thought ---------------------------------------------------------------------------------------------------------
# Features of answers from the newest models: thinking, unique call ids, truncation at `max_tokens`.


EFFORT = {"low": 0.5, "medium": 1.0, "high": 2.0, "xhigh": 4.0, "max": 8.0}
"""Factors for the length of thinking."""
REDACTED_ONE_IN = 16  # answers
SILENT = "I think about what to do next."


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    """A message to send, and its tokens."""

    message: BehaviourMessage
    thinking_tokens: int
    output_tokens: int


def answer_with(message: BehaviourMessage, request: Admitted, thinking_tokens: int) -> EncodedAnswer:
    """Add thinking to the message, and limit its length."""
    if request.body.max_tokens == 0:  # the request only reads and writes the cache
        return EncodedAnswer(BehaviourMessage((), "max_tokens"), 0, 0)
    message = replace(message, blocks=tuple(_with_unique_ids(message, request)))
    thought = 0
    if request.thinks:
        thought = round(thinking_tokens * EFFORT[request.effort])
        message, summary = _after_thinking(message, request)
        thought += tokens(len(summary))
    return _within(message, request.body.max_tokens, thought)


def _with_unique_ids(message: BehaviourMessage, request: Admitted) -> Iterator[Block]:
    """Yield blocks with ids that are unique in the conversation."""
    for index, block in enumerate(message.blocks):
        tag = f"{request.binding.prefix[:8]}{index}"
        yield replace(block, id=f"{block.id}_{tag}") if isinstance(block, ToolUse) else block


def _after_thinking(message: BehaviourMessage, request: Admitted) -> tuple[BehaviourMessage, str]:
    """Return the message after its thinking, and the summary. Between tool calls, models don't write texts."""
    texts = [block.text for block in message.blocks if isinstance(block, Text)]
    acts = any(isinstance(block, ToolUse) for block in message.blocks)
    summary = "\n".join(texts) if acts and texts else SILENT
    shown = summary if request.summarized else ""
    signature = sign(request.rules.id, request.binding, shown)
    blocks: list[Block] = [Thinking(shown, signature)]
    if int(request.binding.prefix[:4], 16) % REDACTED_ONE_IN == 0:
        binding = replace(request.binding, previous=signed_id(signature))
        blocks.append(Redacted(sign(request.rules.id, binding, "")))
    rest = [block for block in message.blocks if not (acts and isinstance(block, Text))]
    return replace(message, blocks=(*blocks, *rest)), summary


def _within(message: BehaviourMessage, most: int, thought: int) -> EncodedAnswer:
    """Truncate the message where it and its thinking reach the limit."""
    left, kept = (most - thought) * CHARACTERS_PER_TOKEN, list[Block]()
    written = 0
    for block in message.blocks:
        if isinstance(block, Thinking | Redacted):
            kept.append(block)
            continue
        text = written_of(block)
        if written + len(text) > left:
            room = max(0, left - written)
            if isinstance(block, ToolUse) and room:
                kept.append(replace(block, broken=text[:room]))
            elif isinstance(block, Text) and text[:room].strip():
                kept.append(Text(text[:room]))
            return EncodedAnswer(BehaviourMessage(tuple(kept), "max_tokens"), min(thought, most), most)
        written += len(text)
        kept.append(block)
    return EncodedAnswer(message, thought, thought + tokens(written))


def written_of(block: Block) -> str:
    """Return the part of a block that counts as output, without thinking."""
    match block:
        case Text(text=text):
            return text
        case ToolUse(broken=None):
            return json.dumps(block.input, ensure_ascii=False)
        case ToolUse(broken=broken):
            return broken or ""
        case _:
            return ""


# ---- encoding --------------------------------------------------------------------------------------------------------


PIECE = 400  # characters of an answer per event

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
    """The metadata of an answer."""

    id: str
    model: str
    prompt: PromptTokens
    extra: dict[str, Any] = field(default_factory=dict)
    """Reports that the request asked for: diagnostics, and dropped parts."""


def error_body(status: int, message: str, request_id: str | None = None) -> dict[str, Any]:
    """Return an error in the service's format."""
    fallback = "api_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004 - server errors
    error = {"type": ERROR_TYPES.get(status, fallback), "message": message}
    return {"type": "error", "error": error, "request_id": request_id}


def message_body(answer: EncodedAnswer, envelope: Envelope) -> dict[str, Any]:
    """Return the answer as one document."""
    body = _start(envelope)
    content = [_full(block) for block in answer.message.blocks]
    usage = usage_of(answer, envelope.prompt)
    return body | {"content": content, "stop_reason": answer.message.stop_reason, "usage": usage}


def halves(body: dict[str, Any]) -> list[bytes]:
    """Split a document into two parts, so that it can break off in the middle, like a stream."""
    document = json.dumps(body).encode()
    return [document[: len(document) // 2], document[len(document) // 2 :]]


def events(answer: EncodedAnswer, envelope: Envelope) -> Iterator[bytes]:
    """Yield the answer as server-sent events."""
    yield event("message_start", {"message": _start(envelope)})
    yield event("ping", {})
    for index, block in enumerate(answer.message.blocks):
        yield event("content_block_start", {"index": index, "content_block": _full(block) | _EMPTY[type(block)]})
        for delta in _deltas(block):
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    ending = {"stop_reason": answer.message.stop_reason, "stop_sequence": None}
    yield event("message_delta", {"delta": ending, "usage": _written(answer)})
    yield event("message_stop", {})


def event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def usage_of(answer: EncodedAnswer, prompt: PromptTokens) -> dict[str, Any]:
    """Return the billed usage of an answer."""
    return _read(prompt) | _written(answer)


def _written(answer: EncodedAnswer) -> dict[str, Any]:
    details = {"thinking_tokens": answer.thinking_tokens}
    return {"output_tokens": answer.output_tokens, "output_tokens_details": details}


def _read(prompt: PromptTokens) -> dict[str, Any]:
    hour = prompt.cache_write_1h
    return {
        "input_tokens": prompt.input,
        "cache_creation_input_tokens": prompt.cache_write,
        "cache_read_input_tokens": prompt.cache_read,
        "cache_creation": {"ephemeral_5m_input_tokens": prompt.cache_write - hour, "ephemeral_1h_input_tokens": hour},
        "output_tokens": 1,
    }


def _start(envelope: Envelope) -> dict[str, Any]:
    return {
        "id": envelope.id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _read(envelope.prompt),
        **envelope.extra,
    }


def _full(block: Block) -> dict[str, Any]:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Thinking(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Redacted(data=data):
            return {"type": "redacted_thinking", "data": data}
        case ToolUse():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case _:
            assert_never(block)


_EMPTY: dict[type[Block], dict[str, Any]] = {
    Text: {"text": ""},
    ToolUse: {"input": {}},
    Thinking: {"thinking": "", "signature": ""},
    Redacted: {},
}
"""The fields of a block that are streamed after its start."""


def _deltas(block: Block) -> Iterator[dict[str, str]]:
    match block:
        case Redacted():
            return
        case Thinking(text=text, signature=signature):
            yield from _pieces("thinking_delta", "thinking", text)
            yield {"type": "signature_delta", "signature": signature}
        case Text():
            yield from _pieces("text_delta", "text", block.text)
        case ToolUse():
            yield from _pieces("input_json_delta", "partial_json", written_of(block))
        case _:
            assert_never(block)


def _pieces(kind: str, name: str, text: str) -> Iterator[dict[str, str]]:
    for start in range(0, len(text), PIECE):
        yield {"type": kind, name: text[start : start + PIECE]}
