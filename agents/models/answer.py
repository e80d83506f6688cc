"""Requests to a model, answers and faults, independent of SDK and wire format."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fleet.core.base.usage import Capability, Usage

THINKING = frozenset({"thinking", "redacted_thinking"})
_SPOKEN = {"text": "text", "thinking": "thinking"}

Block = dict[str, Any]
"""A content block in wire format. Assistant blocks are sent back unchanged."""
Message = dict[str, Any]

FaultKind = Literal[
    "limit",  # too many calls or tokens for now
    "outage",  # no connection, or the service fails for every caller
    "broken",  # this answer broke off or can't be parsed
    "refused",  # the key, its permissions or its billing: only a human can fix it
    "gone",  # the model does not exist
    "configuration",  # an invalid request
    "conversation",  # a request that is invalid because of this conversation's messages
    "too_long",
    "other",
]
QuotaKind = Literal["requests", "input", "output"]


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of the service per minute, and how much of it remains."""

    limit: float
    remaining: float


Quotas = Mapping[QuotaKind, Quota]
"""The quotas in a response, possibly none."""
OnBegin = Callable[[Quotas], None]
"""Called when an answer starts. From then on its cache entries can be read."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a model."""

    model: str
    max_tokens: int
    system: str
    tools: tuple[Block, ...]
    messages: tuple[Message, ...]
    shared: int = 0
    """The number of leading blocks of the first message that other conversations share."""
    effort: str | None = None
    """The effort level; None for the model's default. Constant during a conversation."""
    recurs: bool = False
    """Whether similar conversations follow each other, minutes apart."""
    kept_s: float = 300.0
    """How long the cache should keep shared blocks: five minutes, or an hour for a larger value."""
    ends_in_cache: bool = True
    """Whether the full first message is written to the cache, which pays off if the conversation continues."""
    previous: str | None = None
    """The id of the conversation's last answer, so that the service can report why this prompt missed the cache."""
    length: int | None = field(default=None, compare=False, repr=False)
    """The number of characters, if already counted."""


CHARACTERS_PER_TOKEN = 3
"""A cautious estimate: prose and code have three to four characters per token."""


def estimated_tokens(request: Request) -> int:
    """Estimate the tokens of a request, too high rather than too low."""
    return characters(request) // CHARACTERS_PER_TOKEN + 1


def characters(request: Request) -> int:
    if request.length is not None:
        return request.length
    return size(request.system) + size(request.tools) + size(request.messages)


def size(value: object) -> int:
    """Return the size in characters. Non-ASCII text counts in bytes, because it takes more tokens."""
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        case dict():
            return sum(len(key) + size(item) + 4 for key, item in value.items())
        case list() | tuple():
            return sum(map(size, value))
        case _:
            return 4


def without_thinking(messages: Sequence[Message]) -> list[Message]:
    """Remove thinking from messages. If that leaves an answer empty, it is removed and its neighbors are merged."""
    kept: list[Message] = []
    for message in messages:
        content = [block for block in message["content"] if block["type"] not in THINKING]
        if not content:
            continue
        if kept and kept[-1]["role"] == message["role"]:
            content = [*kept.pop()["content"], *content]
        kept.append({**message, "content": content})
    return kept


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the model."""

    id: str
    name: str
    input: dict[str, Any]
    problem: str | None = None
    """Why the input is invalid, or None."""

    @property
    def action(self) -> str:
        """Return a text that is equal for equal actions, regardless of call ids and key order."""
        return f"{self.name} {json.dumps(self.input, sort_keys=True, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Depending on its stop reason, it may still be unusable."""

    blocks: tuple[Block, ...]
    stop_reason: str | None
    usage: Usage
    model: str
    request_id: str | None = None
    seconds: float = 0.0
    calls: tuple[ToolCall, ...] = ()
    """The tool calls among the blocks."""
    id: str | None = None
    cache_miss: str | None = None
    """Why the prompt missed the cache, as reported by the service."""

    def record(self) -> dict[str, Any]:
        """Return the fields for a transcript."""
        return {
            "model": self.model,
            "stop_reason": self.stop_reason,
            "request_id": self.request_id,
            "usage": self.usage.model_dump(),
            "content": self.blocks,
            **({"cache_miss": self.cache_miss} if self.cache_miss else {}),
        }

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.blocks if block["type"] == "text" and block.get("text"))

    @property
    def said(self) -> str:
        """Return the model's texts and the summaries of its thinking."""
        texts = (block.get(_SPOKEN.get(block["type"], "")) for block in self.blocks)
        return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


@dataclass(frozen=True, slots=True)
class CallFault:
    """A call without a usable answer."""

    kind: FaultKind
    message: str
    status: int | None = None
    """The HTTP status; None without a response."""
    retry_after_s: float | None = None
    quotas: Quotas = field(default_factory=dict)
    usage: Usage | None = None
    """The usage of the failed call."""
    request_id: str | None = None
    seconds: float = 0.0


Lacks = Callable[[str, Capability], bool]
"""Whether the service of a model lacks a capability."""


def lacks_nothing(model: str, capability: Capability) -> bool:
    """Return False: the service has every capability."""
    del model, capability
    return False


class Model(Protocol):
    """Answers requests."""

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault: ...


# ---- parameters ------------------------------------------------------------------------------------------------------
# Requests as parameters of the Messages API, with cache marks, and without capabilities that the service lacks.


ADAPTIVE: Block = {"type": "adaptive", "display": "summarized"}
"""The thinking parameter of fleet's conversations."""
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
"""Declarations of the service's built-in tools, for services without them."""


def parameters_of(request: Request, without: frozenset[Capability]) -> dict[str, Any]:
    """Return the parameters of a call, except for streaming."""
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
        parameters["thinking"] = ADAPTIVE
    if request.effort is not None and "effort" not in without:
        parameters["output_config"] = {"effort": request.effort}
    if "diagnostics" not in without:
        parameters["diagnostics"] = {"previous_message_id": request.previous}
    return parameters


def _with_marks(request: Request, messages: list[Message], *, hour: bool) -> list[Message]:
    """Add cache marks to the messages. The service allows three, plus the one on the system prompt.

    The first is after the shared blocks, which may be kept for longer. The second is at the end of the last call, which
    the service would not find after a turn with many blocks. The third is at the end.
    """
    messages = list(messages)
    ours = [index for index, message in enumerate(messages) if message["role"] == "user"]
    for index in ours[-2:] if request.ends_in_cache or len(ours) > 1 else ():
        messages[index] = _mark(messages[index], -1, _SHORT)
    if request.shared:
        messages[0] = _mark(messages[0], request.shared - 1, _HOUR if hour else _SHORT)
    return messages


def _mark(message: Message, at: int, mark: Block) -> Message:
    content = list(message["content"])
    content[at] = {**content[at], "cache_control": mark}
    return {**message, "content": content}


def _plain(tool: Block, without: frozenset[Capability]) -> Block:
    """Return a tool as supported by the service."""
    if "strict_tools" in without:
        tool = {key: value for key, value in tool.items() if key != "strict"}
    if "built_in_tools" in without and (described := _DESCRIBED.get(tool.get("type", ""))) is not None:
        return {"name": tool["name"], **described}
    return tool
