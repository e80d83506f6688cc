"""A prompt as the service sees it: its blocks in the order in which they are cached, without their marks."""

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
class Piece:
    """One block of a prompt."""

    path: str
    """Where it is in the request, as errors name it."""
    role: str
    """`tools`, or the role of its message; the system prompt's is `system`."""
    type: str
    text: str
    """The same for the same content: without its cache mark, with its keys in order."""
    mark: Lifetime | None
    block: dict[str, Any]

    @property
    def is_thinking(self) -> bool:
        return self.type in THINKING


def as_blocks(content: Any) -> list[dict[str, Any]]:
    """A text is short for one block of text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def pieces_of(data: dict[str, Any]) -> list[Piece]:
    """All blocks: tools, system prompt, messages. A mark of the whole request counts as one on its last block."""
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


def _piece(path: str, role: str, block: dict[str, Any]) -> Piece:
    control = block.get("cache_control")
    rest = {name: value for name, value in block.items() if name != "cache_control" and value is not None}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False)
    return Piece(path, role, str(block.get("type", "custom")), text, control and control.get("ttl", "5m"), block)


def marked(pieces: list[Piece]) -> Iterator[tuple[int, Lifetime]]:
    """The blocks that end in a mark, by their index."""
    for index, piece in enumerate(pieces):
        if piece.mark is not None:
            yield index, piece.mark


# ---- refusal ---------------------------------------------------------------------------------------------------------
# A request that the service refuses.


class RequestError(Exception):
    """The request is refused: 400, unless another status is named."""

    def __init__(self, message: str, status: int = 400, *, retry_after: float | None = None, family: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.family = family
        """The family of models whose limits the response names."""
        self.retry_after = retry_after


# ---- body ------------------------------------------------------------------------------------------------------------
# What the simulated model reads of a request that keeps the rules.


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of the conversation."""

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
# What a simulated model understands of a request: its role, its subtask, the state and what it did so far.


Role = Literal["planner", "worker", "reviewer", "other"]

SESSION_ENDING = "StructuredOutput"
"""The tool with which a session of Claude Code reports."""
_ENDINGS: dict[str, Role] = {
    "submit_revision": "planner",
    "report": "worker",
    SESSION_ENDING: "worker",
    "submit_review": "reviewer",
}
_STEP = re.compile(r"toolu_simulated_([a-z]+)_([0-9]+)_[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one of our tool calls."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class PastTurn:
    """One of our own answers that called tools, with the results."""

    step: str
    number: int
    """Which of its kind, from 0: earlier ones may have been left out of a long conversation."""
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A call to the model."""

    model: str
    role: Role
    tools: frozenset[str]
    turns: tuple[PastTurn, ...]
    """Our turns so far whose tool calls were valid, oldest first."""
    run: str
    subtask: Mapping[str, Any]
    attempt: int
    guidance: str
    state: Mapping[str, Any]
    review: Mapping[str, Any] = field(default_factory=dict)
    change: str = ""
    """The change under review, as the tool returned it."""
    ours: str = ""
    """What the client says in its own words, the system prompt included."""

    def done(self, step: str) -> int:
        """How many turns of this step there were, also where a shortened conversation no longer has them all."""
        return max((turn.number + 1 for turn in self.turns if turn.step == step), default=0)


def read_request(body: Body) -> Request:
    tools = frozenset(str(tool.get("name", "")) for tool in body.tools)
    role: Role = next((role for name, role in _ENDINGS.items() if name in tools), "other")
    texts = [text for message in body.messages if message.role == "user" and (text := _text(message.blocks))]
    first = texts[0] if texts and role in {"worker", "reviewer"} else ""
    review = _block(first, "review") if role == "reviewer" else {}
    attempt = {"run": review.get("run"), "number": review.get("attempt")} if review else _block(first, "attempt")
    state = _block("\n".join(texts), "state", last=True) if role == "planner" else {}
    number = attempt.get("number")
    return Request(
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
    """What tools returned, all together."""
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
    """The texts of a message or of a tool's result."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(item["text"]) for item in content if isinstance(item, dict) and "text" in item)


def _block(text: str, name: str, *, last: bool = False) -> Mapping[str, Any]:
    """The JSON object in `<name>…</name>`: the first one, or the last."""
    blocks = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if not blocks:
        return {}
    try:
        data = parse_json(blocks[-1 if last else 0])
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


# ---- cache -----------------------------------------------------------------------------------------------------------
# Prompt caching: which marks are allowed, and how many tokens of a prompt are read, written and new.
#
# A prefix that ends at a mark is written once an answer to it begins, for five minutes or an hour from the start of
# its request; reading it starts that time again. Short prefixes are not cached, and a mark looks back over a few
# blocks only. Tokens are estimated at four characters each.


CHARACTERS_PER_TOKEN = 4
REMEMBERED = 100_000  # prefixes; 16 bytes each
LIFETIME_S: dict[Lifetime, float] = {"5m": 300.0, "1h": 3600.0}
MOST_MARKS = 4
LOOKBACK = 20  # blocks before a mark in which an earlier prefix is looked for


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The tokens of a prompt: new, written to the cache (of those, for an hour), read from it."""

    input: int
    cache_write: int
    cache_read: int
    cache_write_1h: int = 0
    begun: Callable[[], None] = lambda: None
    """To be called when the answer begins: what it writes can be read from then on."""

    @property
    def total(self) -> int:
        return self.input + self.cache_write + self.cache_read


@dataclass(slots=True)
class _Entry:
    """A prefix in the cache."""

    lifetime_s: float
    until: float


def check_marks(pieces: Sequence[Piece]) -> None:
    """Raises `RequestError` for marks that are too many, out of order, or on what can't be cached."""
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

    def count(self, reader: str, pieces: Sequence[Piece], minimum_tokens: int) -> PromptTokens:
        """Count the tokens of a prompt whose request starts now. `reader` is the model with its effort."""
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
        if known is not None:  # another request may have used it meanwhile
            lifetime_s, until = max(lifetime_s, known.lifetime_s), max(until, known.until)
        self._entries[prefix] = _Entry(lifetime_s, until)
        self._entries.move_to_end(prefix)
        while len(self._entries) > REMEMBERED:
            self._entries.popitem(last=False)


def _prefixes(reader: str, pieces: Sequence[Piece]) -> tuple[list[bytes], list[int]]:
    """The digests and the lengths of all prefixes of the blocks."""
    digest = blake2b(reader.encode(), digest_size=16)
    digests, lengths, length = [], [], 0
    for piece in pieces:
        digest.update(f"{piece.role}{piece.text}\0".encode("utf-8", "surrogatepass"))
        length += len(piece.role) + len(piece.text)
        digests.append(digest.digest())
        lengths.append(length)
    return digests, lengths


def tokens(characters: int) -> int:
    """An estimate, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)
