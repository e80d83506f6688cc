"""A request as the parameters of the Messages API, with its cache marks, and without what a service lacks."""

from collections.abc import Mapping
from typing import Any

from agents.models.answer import Block, Message, Request, without_thinking
from fleet.core.base.capabilities import Capability

_SHORT: Block = {"type": "ephemeral"}
_HOUR: Block = {"type": "ephemeral", "ttl": "1h"}
_SHORT_S = 300.0

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_DESCRIBED: Mapping[str, Block] = {
    "bash_20250124": {
        "description": "Runs a command in a shell and returns its output.",
        "input_schema": {"type": "object", "properties": {"command": _TEXT}, "required": ["command"]},
    },
    "text_editor_20250728": {
        "description": (
            "Views and edits files. `view` shows a file or folder (`view_range`: its first and last line), `create` "
            "writes `file_text`, `str_replace` replaces the only `old_str` by `new_str`, `insert` "
            "adds `insert_text` after a line."
        ),
        "input_schema": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
                "path": _TEXT,
                "view_range": {"type": "array", "items": _NUMBER},
                **dict.fromkeys(("file_text", "old_str", "new_str", "insert_text"), _TEXT),
                "insert_line": _NUMBER,
            },
            "required": ["command", "path"],
        },
    },
}
"""The service's own tools, for one that does not know them."""


def parameters_of(request: Request, without: frozenset[Capability]) -> dict[str, Any]:
    """Everything but how the answer is sent."""
    hour = request.kept_s > _SHORT_S and "cache_hour" not in without
    system: Block = {"type": "text", "text": request.system}
    messages = list(request.messages)
    if "thinking_history" in without:
        messages = without_thinking(messages)
    if "cache" not in without:
        system["cache_control"] = _HOUR if hour else _SHORT
        messages = _with_marks(request, messages, hour=hour)
    parameters: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "system": [system],
        "tools": [_plain(tool, without) for tool in request.tools],
        "messages": messages,
    }
    if "thinking" not in without:
        parameters["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.effort is not None and "effort" not in without:
        parameters["output_config"] = {"effort": request.effort}
    if "diagnostics" not in without:
        parameters["diagnostics"] = {"previous_message_id": request.previous}
    return parameters


def _with_marks(request: Request, messages: list[Message], *, hour: bool) -> list[Message]:
    """The messages with cache marks; the service allows three besides the one on the system prompt.

    One ends what other conversations share, which may be kept for longer. One marks where the last call ended, which
    the service would not find after a turn of many blocks. One is at the end.
    """
    messages = list(messages)
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


def _plain(tool: Block, without: frozenset[Capability]) -> Block:
    """A tool as the service takes it."""
    if "strict_tools" in without:
        tool = {key: value for key, value in tool.items() if key != "strict"}
    if "built_in_tools" in without and (described := _DESCRIBED.get(tool.get("type", ""))) is not None:
        return {"name": tool["name"], **described}
    return tool
