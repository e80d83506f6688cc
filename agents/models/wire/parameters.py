"""A request as the parameters of the Messages API, with its cache marks, and without what a service lacks."""

from typing import Any

from agents.models.answer import Block, Message, Request
from agents.models.wire.features import Feature

_SHORT: Block = {"type": "ephemeral"}
_HOUR: Block = {"type": "ephemeral", "ttl": "1h"}
_SHORT_S = 300.0


def parameters_of(request: Request, without: frozenset[Feature]) -> dict[str, Any]:
    """Everything but how the answer is sent."""
    hour = request.kept_s > _SHORT_S and "hour" not in without
    parameters: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "system": [{"type": "text", "text": request.system, "cache_control": _HOUR if hour else _SHORT}],
        "tools": [_lenient(tool) if "strict" in without else tool for tool in request.tools],
        "messages": _with_marks(request, hour=hour),
    }
    if "thinking" not in without:
        parameters["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.effort is not None and "effort" not in without:
        parameters["output_config"] = {"effort": request.effort}
    if "diagnostics" not in without:
        parameters["diagnostics"] = {"previous_message_id": request.previous}
    return parameters


def _with_marks(request: Request, *, hour: bool) -> list[Message]:
    """The messages with cache marks; the service allows three besides the one on the system prompt.

    One ends what other conversations share, which may be kept for longer. One marks where the last call ended, which
    the service would not find after a turn of many blocks. One is at the end.
    """
    messages = list(request.messages)
    ours = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in ours[-2:] if request.ends_in_cache or len(ours) > 1 else ():
        messages[index] = _marked(messages[index], -1, _SHORT)
    if request.shared:
        messages[0] = _marked(messages[0], request.shared - 1, _HOUR if hour else _SHORT)
    return messages


def _marked(message: Message, at: int, mark: Block) -> Message:
    content = list(message["content"])
    content[at] = {**content[at], "cache_control": mark}
    return {**message, "content": content}


def _lenient(tool: Block) -> Block:
    return {key: value for key, value in tool.items() if key != "strict"}
