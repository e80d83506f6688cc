"""From the events of a stream to one answer, in time linear in its length.

Trusts nothing about order or shape: an event that makes no sense makes the whole answer a fault. Knows no SDK.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.models.answer import Answer, Block, CallFault, FaultKind
from agents.text import well_formed
from fleet.core.usage import Usage

_LONGEST = 20_000_000  # characters of one answer; more is no answer
_LONGEST_NAME = 200
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_COUNTS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}


class Senseless(Exception):  # noqa: N818 - it never leaves the client
    """An event that no protocol explains."""


@dataclass(slots=True)
class _Piece:
    """A content block while it grows. Pieces are joined once, at the end."""

    block: Block
    texts: dict[str, list[str]] = field(default_factory=dict)
    json: list[str] = field(default_factory=list)
    closed: bool = False


@dataclass(slots=True)
class Fold:
    """Takes events one by one. `finished` once the message has come to its end."""

    model: str = ""
    stop_reason: str | None = None
    finished: bool = False
    _pieces: dict[int, _Piece] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _size: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(**{name: self._counts.get(key, 0) for name, key in _COUNTS.items()})

    @property
    def begun(self) -> bool:
        return bool(self._counts)

    def take(self, event: Mapping[str, Any]) -> None:
        """Raises `Senseless`. Events of unknown types are skipped, as the protocol asks."""
        try:
            self._take(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Senseless(f"a {event.get('type')!r} event without {error}") from error

    def _take(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "message_start":
                message = event["message"]
                self.model = str(message["model"])[:_LONGEST_NAME]
                self._count(message.get("usage") or {})
                for index, block in enumerate(message.get("content") or ()):
                    self._pieces[index] = _Piece(dict(block), closed=True)
            case "content_block_start":
                self._pieces[int(event["index"])] = _Piece(dict(event["content_block"]))
            case "content_block_delta":
                self._grow(self._pieces[int(event["index"])], event["delta"])
            case "content_block_stop":
                self._pieces[int(event["index"])].closed = True
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason")
                self._count(event.get("usage") or {})
            case "message_stop":
                self.finished = True
            case _:
                pass

    def _grow(self, piece: _Piece, delta: Mapping[str, Any]) -> None:
        kind = delta["type"]
        text = ""
        if kind == "input_json_delta":
            text = delta["partial_json"]
            piece.json.append(text)
        elif kind in _TEXTS:
            text = delta[_TEXTS[kind]]
            piece.texts.setdefault(_TEXTS[kind], []).append(text)
        elif kind == "citations_delta":
            piece.block["citations"] = [*(piece.block.get("citations") or ()), delta["citation"]]
        self._size += len(text)
        if self._size > _LONGEST:
            raise Senseless(f"an answer of more than {_LONGEST} characters")

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Counts in a stream are totals: the last one that is given holds."""
        for key in _COUNTS.values():
            count = usage.get(key)
            if isinstance(count, int) and count >= 0:
                self._counts[key] = count

    def answer(self, *, request_id: str | None, seconds: float) -> Answer | CallFault:
        """What came of it: a complete answer, or a fault and nothing that could be acted upon."""
        used = self.usage if self.begun else None
        if not self.finished or not all(piece.closed for piece in self._pieces.values()):
            kind: FaultKind = "broken" if self.begun else "outage"
            return CallFault(kind, "the stream broke off before its end", usage=used, seconds=seconds)
        blocks: list[Block] = []
        broken: dict[str, str] = {}
        try:
            for _, piece in sorted(self._pieces.items()):
                blocks.append(_joined(piece, broken))
            json.dumps(blocks, ensure_ascii=False).encode("utf-8")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            return CallFault("broken", f"a content block that makes no sense: {error}", usage=used, seconds=seconds)
        return Answer(tuple(blocks), self.stop_reason, self.usage, self.model, request_id, seconds, broken)


def _joined(piece: _Piece, broken: dict[str, str]) -> Block:
    block = piece.block
    for name, texts in piece.texts.items():
        block[name] = well_formed("".join([block.get(name) or "", *texts]))
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        raise TypeError("text")
    if block["type"] != "tool_use":
        return block
    for name in ("id", "name"):
        if not isinstance(block[name], str):
            raise TypeError(name)
    value, problem = _tool_input(block, "".join(piece.json))
    if problem:
        broken[block["id"]] = problem
    return {**block, "input": value}


def _tool_input(block: Block, text: str) -> tuple[dict[str, Any], str | None]:
    try:
        value = json.loads(well_formed(text)) if text.strip() else block.get("input", {})
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # what can't be sent back can't be used
    except (ValueError, RecursionError) as error:
        return {}, f"its input is not valid JSON ({error})"
    if not isinstance(value, dict):
        return {}, "its input is not a JSON object"
    return value, None
