"""The blocks of a prompt in the order in which they are cached, without cache marks."""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from fleet.core.base.output import parse_json

Lifetime = Literal["5m", "1h"]
THINKING = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """A block of a prompt."""

    path: str
    """The path in the request, for errors."""
    role: str
    """`tools`, `system` for the system prompt, or the role of its message."""
    type: str
    text: str
    """The normalized content: without cache mark, with sorted keys."""
    mark: Lifetime | None
    block: dict[str, Any]

    @property
    def is_thinking(self) -> bool:
        return self.type in THINKING


def as_blocks(content: Any) -> list[dict[str, Any]]:
    """Return content as blocks. A string is short for one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def pieces_of(data: dict[str, Any]) -> list[PromptPiece]:
    """Return all blocks: tools, system prompt, messages. A cache mark of the request belongs to its last block."""
    pieces = [_piece(f"tools.{index}", "tools", block) for index, block in enumerate(data.get("tools") or ())]
    system = as_blocks(data.get("system")) if data.get("system") else []
    pieces += [_piece(f"system.{index}", "system", block) for index, block in enumerate(system)]
    for number, message in enumerate(data["messages"]):
        blocks = as_blocks(message["content"])
        at = f"messages.{number}.content"
        pieces += [_piece(f"{at}.{index}", message["role"], block) for index, block in enumerate(blocks)]
    if data.get("cache_control") and pieces:
        last = pieces[-1]
        pieces[-1] = _piece(last.path, last.role, {**last.block, "cache_control": data["cache_control"]})
    return pieces


def _piece(path: str, role: str, block: dict[str, Any]) -> PromptPiece:
    control = block.get("cache_control")
    rest = {name: value for name, value in block.items() if name != "cache_control" and value is not None}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False)
    return PromptPiece(path, role, str(block.get("type", "custom")), text, control and control.get("ttl", "5m"), block)


def marked(pieces: list[PromptPiece]) -> Iterator[tuple[int, Lifetime]]:
    """Yield the indexes of blocks with a cache mark."""
    for index, piece in enumerate(pieces):
        if piece.mark is not None:
            yield index, piece.mark


# ---- refusal ---------------------------------------------------------------------------------------------------------
# Requests that the service rejects.


class RequestError(Exception):
    """A rejected request, with status 400 by default."""

    def __init__(self, message: str, status: int = 400, *, retry_after: float | None = None, family: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.family = family
        """The family of models whose limits are in the response."""
        self.retry_after = retry_after


# ---- body ------------------------------------------------------------------------------------------------------------
# The fields of a valid request that the simulated model uses.


@dataclass(frozen=True, slots=True)
class InputMessage:
    """A message of the conversation."""

    role: str
    blocks: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Body:
    """The request."""

    model: str
    max_tokens: int
    messages: tuple[InputMessage, ...]
    tools: tuple[dict[str, Any], ...]
    stream: bool
    system: str = ""


def read_body(data: dict[str, Any]) -> Body:
    messages = (InputMessage(message["role"], as_blocks(message["content"])) for message in data["messages"])
    tools, stream = tuple(data.get("tools") or ()), bool(data.get("stream"))
    system = "\n".join(str(block.get("text", "")) for block in as_blocks(data.get("system") or ""))
    return Body(data["model"], data["max_tokens"], tuple(messages), tools, stream, system)


# ---- request ---------------------------------------------------------------------------------------------------------
# A parsed request: the role, the subtask, the state and earlier turns.


Role = Literal["planner", "worker", "reviewer", "other"]

SESSION_ENDING = "StructuredOutput"
"""The tool with which Claude Code submits its report."""
_ENDINGS: dict[str, Role] = {
    "submit_revision": "planner",
    "report": "worker",
    SESSION_ENDING: "worker",
    "submit_review": "reviewer",
}
_STEP = re.compile(r"toolu_simulated_([a-z]+)_([0-9]+)_[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class PastTurn:
    """An earlier answer with tool calls and their results."""

    step: str
    number: int
    """The number among turns of its kind, from 0. Earlier ones may be missing in a long conversation."""
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A call to the model."""

    model: str
    role: Role
    tools: frozenset[str]
    turns: tuple[PastTurn, ...]
    """Earlier turns with valid tool calls, oldest first."""
    run: str
    subtask: Mapping[str, Any]
    attempt: int
    guidance: str
    state: Mapping[str, Any]
    review: Mapping[str, Any] = field(default_factory=dict)
    change: str = ""
    """The change under review, as returned by the tool."""
    ours: str = ""
    """The client's texts, including the system prompt."""

    def done(self, step: str) -> int:
        """Return the number of turns of this step, including those that a compacted conversation no longer contains."""
        return max((turn.number + 1 for turn in self.turns if turn.step == step), default=0)


def read_request(body: Body) -> PromptRequest:
    tools = frozenset(str(tool.get("name", "")) for tool in body.tools)
    role: Role = next((role for name, role in _ENDINGS.items() if name in tools), "other")
    texts = [text for message in body.messages if message.role == "user" and (text := _text(message.blocks))]
    first = texts[0] if texts and role in {"worker", "reviewer"} else ""
    review = _block(first, "review") if role == "reviewer" else {}
    attempt = {"run": review.get("run"), "number": review.get("attempt")} if review else _block(first, "attempt")
    state = _block("\n".join(texts), "state", last=True) if role == "planner" else {}
    number = attempt.get("number")
    return PromptRequest(
        model=body.model,
        role=role,
        tools=tools,
        turns=tuple(_turns(body)),
        run=str(attempt.get("run") or state.get("run") or ""),
        subtask=_block(first, "subtask"),
        attempt=number if isinstance(number, int) and number > 0 else 1,
        guidance=str(attempt.get("guidance") or ""),
        state=state,
        review=review,
        change=_tool_results(body) if review else "",
        ours="\n".join((body.system, *texts)) if review else "",
    )


def _tool_results(body: Body) -> str:
    """Return the results of all tools."""
    blocks = (block for message in body.messages for block in message.blocks)
    return "\n".join(_text(block.get("content")) for block in blocks if block.get("type") == "tool_result")


def _turns(body: Body) -> list[PastTurn]:
    results = {
        str(block.get("tool_use_id")): Result(_text(block.get("content")), bool(block.get("is_error")))
        for message in body.messages
        for block in message.blocks
        if block.get("type") == "tool_result"
    }
    turns = []
    for message in body.messages:
        calls = [str(block.get("id")) for block in message.blocks if block.get("type") == "tool_use"]
        steps = [match for call in calls if (match := _STEP.fullmatch(call))]
        if steps and message.role == "assistant":
            turns.append(PastTurn(steps[0][1], int(steps[0][2]), tuple(results[call] for call in calls)))
    return turns


def _text(content: object) -> str:
    """Return the texts of a message or a tool result."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(item["text"]) for item in content if isinstance(item, dict) and "text" in item)


def _block(text: str, name: str, *, last: bool = False) -> Mapping[str, Any]:
    """Return the JSON object in the first or last `<name>…</name>`."""
    blocks = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if not blocks:
        return {}
    try:
        data = parse_json(blocks[-1 if last else 0])
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


# ---- cache -----------------------------------------------------------------------------------------------------------
# Prompt caching: checks marks, and counts the tokens of a prompt that are read, written and uncached.
#
# A prefix that ends at a mark is written when its answer starts, for five minutes or an hour from the start of its
# request. Reading it restarts that time. Short prefixes are not cached, and only a few blocks before a mark are
# searched for earlier prefixes. Tokens are estimated at four characters each.


CHARACTERS_PER_TOKEN = 4
REMEMBERED = 100_000  # prefixes; 16 bytes each
LIFETIME_S: dict[Lifetime, float] = {"5m": 300.0, "1h": 3600.0}
MOST_MARKS = 4
LOOKBACK = 20  # blocks before a mark that are searched for an earlier prefix


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The tokens of a prompt: uncached, written to the cache (of those, for an hour), read from the cache."""

    input: int
    cache_write: int
    cache_read: int
    cache_write_1h: int = 0
    begun: Callable[[], None] = lambda: None
    """Called when the answer starts. From then on, written prefixes can be read."""

    @property
    def total(self) -> int:
        return self.input + self.cache_write + self.cache_read


@dataclass(slots=True)
class _Entry:
    """A prefix in the cache."""

    lifetime_s: float
    until: float


def check_marks(pieces: Sequence[PromptPiece]) -> None:
    """Check cache marks. Raises `RequestError` if there are too many, or for wrong order or blocks."""
    marks = list(marked(list(pieces)))
    if len(marks) > MOST_MARKS:
        raise RequestError(f"A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")
    short = False
    for index, lifetime in marks:
        piece = pieces[index]
        if piece.is_thinking:
            raise RequestError(f"{piece.path}.cache_control: cache_control cannot be set for `thinking` blocks")
        if lifetime == "1h" and short:
            raise RequestError(
                f"{piece.path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: `tools`, `system`, "
                "`messages`."
            )
        short |= lifetime == "5m"


class PromptCache:
    """The prefixes written so far."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def count(self, reader: str, pieces: Sequence[PromptPiece], minimum_tokens: int) -> PromptTokens:
        """Count the tokens of a prompt whose request starts now. `reader` is the model and its effort."""
        start = self._now()
        digests, lengths = _prefixes(reader, pieces)
        marks = [(at, time) for at, time in marked(list(pieces)) if tokens(lengths[at]) >= minimum_tokens]
        total = lengths[-1] if lengths else 0
        if not marks:
            return PromptTokens(input=tokens(total), cache_write=0, cache_read=0)
        candidates = {index for mark, _ in marks for index in range(max(0, mark - LOOKBACK), mark + 1)}
        longest = max((index for index in candidates if self._is_warm(digests[index], start)), default=None)
        read = 0 if longest is None else lengths[longest]
        if longest is not None:
            entry = self._entries[digests[longest]]
            entry.until = start + entry.lifetime_s
        cached = lengths[marks[-1][0]]
        hour = max((lengths[at] for at, lifetime in marks if lifetime == "1h"), default=0)
        written = {digests[at]: LIFETIME_S[lifetime] for at, lifetime in marks}

        def begun() -> None:
            for prefix, lifetime_s in written.items():
                self._remember(prefix, lifetime_s, start + lifetime_s)

        return PromptTokens(
            input=tokens(total) - tokens(cached),
            cache_write=max(0, tokens(cached) - tokens(read)),
            cache_read=tokens(read),
            cache_write_1h=max(0, tokens(hour) - tokens(read)),
            begun=begun,
        )

    def _is_warm(self, prefix: bytes, now: float) -> bool:
        entry = self._entries.get(prefix)
        return entry is not None and now <= entry.until

    def _remember(self, prefix: bytes, lifetime_s: float, until: float) -> None:
        known = self._entries.get(prefix)
        if known is not None:  # another request may have used it in the meantime
            lifetime_s, until = max(lifetime_s, known.lifetime_s), max(until, known.until)
        self._entries[prefix] = _Entry(lifetime_s, until)
        self._entries.move_to_end(prefix)
        while len(self._entries) > REMEMBERED:
            self._entries.popitem(last=False)


def _prefixes(reader: str, pieces: Sequence[PromptPiece]) -> tuple[list[bytes], list[int]]:
    """Return the digests and lengths of all prefixes of the blocks."""
    digest = blake2b(reader.encode(), digest_size=16)
    digests, lengths, length = [], [], 0
    for piece in pieces:
        digest.update(f"{piece.role}{piece.text}\0".encode("utf-8", "surrogatepass"))
        length += len(piece.role) + len(piece.text)
        digests.append(digest.digest())
        lengths.append(length)
    return digests, lengths


def tokens(characters: int) -> int:
    """Estimate the number of tokens, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)
