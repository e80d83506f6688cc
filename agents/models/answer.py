"""Requests to a model, answers and faults. Knows no SDK and no wire format."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fleet.core.base.usage import Capability, Usage

THINKING = frozenset({"thinking", "redacted_thinking"})
_SPOKEN = {"text": "text", "thinking": "thinking"}

Block = dict[str, Any]
"""A content block exactly as it is on the wire; assistant blocks are sent back unchanged."""
Message = dict[str, Any]

FaultKind = Literal[
    "limit",  # too many calls or tokens for now
    "outage",  # no connection, or the service fails for every caller
    "broken",  # this answer broke off or can't be parsed
    "refused",  # the key, its permissions or its billing: only a human can fix it
    "gone",  # the model does not exist
    "configuration",  # an invalid request
    "conversation",  # a request that only this conversation's messages make invalid
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
"""The quotas a response names; empty if it names none."""
OnBegin = Callable[[Quotas], None]
"""Called when an answer begins: from then on its cache entries can be read."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a model."""

    model: str
    max_tokens: int
    system: str
    tools: tuple[Block, ...]
    messages: tuple[Message, ...]
    shared: int = 0
    """Blocks at the front of the first message that other conversations share."""
    effort: str | None = None
    """How hard the model tries; None: as it does by default. The same for a whole conversation."""
    recurs: bool = False
    """Whether conversations like this one follow each other, minutes apart."""
    kept_s: float = 300.0
    """How long the cache should keep what is shared: five minutes, or an hour if this is more."""
    ends_in_cache: bool = True
    """Whether a first message is written to the cache as a whole: that pays if the conversation continues."""
    previous: str | None = None
    """The id of the conversation's last answer, so that the service can say why this prompt missed the cache."""
    length: int | None = field(default=None, compare=False, repr=False)
    """Its characters, if the caller has already counted them."""


CHARACTERS_PER_TOKEN = 3
"""A cautious estimate: prose and code have three to four characters per token."""


def estimated_tokens(request: Request) -> int:
    """A rough count, more likely too high than too low."""
    return characters(request) // CHARACTERS_PER_TOKEN + 1


def characters(request: Request) -> int:
    if request.length is not None:
        return request.length
    return size(request.system) + size(request.tools) + size(request.messages)


def size(value: object) -> int:
    """Characters as a model sees them. Text that is not ASCII counts in bytes, because it takes more tokens."""
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
    """The messages without thinking. An answer of nothing else goes, and what we said around it becomes one message."""
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
    """A tool the model chose to call."""

    id: str
    name: str
    input: dict[str, Any]
    problem: str | None = None
    """Why the input can't be used."""

    @property
    def action(self) -> str:
        """Equal for equal actions, whatever the call's id and the order of its keys."""
        return f"{self.name} {json.dumps(self.input, sort_keys=True, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Its stop reason may still make it useless."""

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
    """Why the prompt could not be read from the cache as far as the one before it, in the service's words."""

    def record(self) -> dict[str, Any]:
        """Its fields for a transcript."""
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
        """What the model says: its texts, and the summaries of its thinking."""
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
    """What the call used although it failed."""
    request_id: str | None = None
    seconds: float = 0.0


Lacks = Callable[[str, Capability], bool]
"""Whether the service of a model lacks something."""


def lacks_nothing(model: str, capability: Capability) -> bool:
    """A service that has everything."""
    del model, capability
    return False


class Model(Protocol):
    """Anything that answers requests."""

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault: ...


# ---- parameters ------------------------------------------------------------------------------------------------------
# A request as the parameters of the Messages API, with its cache marks, and without what a service lacks.


ADAPTIVE: Block = {"type": "adaptive", "display": "summarized"}
"""How a model thinks in a conversation of ours."""
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
        parameters["thinking"] = ADAPTIVE
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
