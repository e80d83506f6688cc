"""Why a prompt could not be read from the cache: the first thing that differs from the request before it."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from agents.simulated.rules.prompt import Piece

REMEMBERED = 20_000  # answers


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """A prompt, as far as it is compared."""

    model: str
    system: bytes
    tools: bytes
    messages: bytes
    length: int
    """How many blocks its messages have."""
    tokens: int


class Fingerprints:
    """The prompts of the latest answers, by the ids of these answers."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Fingerprint] = OrderedDict()

    def remember(self, answer: str, model: str, pieces: Sequence[Piece], tokens: int) -> None:
        self._known[answer] = _fingerprint(model, pieces, tokens)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def compare(self, asked: object, model: str, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        """The `diagnostics` of an answer; None if the request did not ask for them, or only grew."""
        previous = asked.get("previous_message_id") if isinstance(asked, dict) else None
        if previous is None:
            return None
        before = self._known.get(previous)
        if before is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        now = _fingerprint(model, pieces, 0, first=before.length)
        for name in ("model", "system", "tools", "messages"):
            if getattr(before, name) != getattr(now, name):
                reason = {"type": f"{name}_changed", "cache_missed_input_tokens": before.tokens}
                return {"cache_miss_reason": reason}
        return None


def _fingerprint(model: str, pieces: Sequence[Piece], tokens: int, *, first: int | None = None) -> _Fingerprint:
    """Of the messages only the `first` blocks count."""
    top = {role: [piece for piece in pieces if piece.path.startswith(f"{role}.")] for role in ("system", "tools")}
    messages = [piece for piece in pieces if piece.path.startswith("messages.")]
    counted = messages if first is None else messages[:first]
    return _Fingerprint(model, _digest(top["system"]), _digest(top["tools"]), _digest(counted), len(counted), tokens)


def _digest(pieces: Sequence[Piece]) -> bytes:
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(f"{piece.role}\0{piece.text}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()
