"""Preserved thinking: each block of thinking is signed over everything before it, and checked when it comes back.

Two checks: the model may read the block, else it is dropped in silence; and nothing before it has changed, nor is any
thinking between other thinking missing. A signature holds all that these checks need, so the service remembers nothing.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from agents.simulated.rules.prompt import Piece
from agents.simulated.rules.refusal import RequestError
from fleet.core.base.json_text import parse_json

Reason = Literal["model_binding_mismatch", "prefix_binding_mismatch"]
_SECRET = b"the simulated service's own key"
_DIGEST = 12  # bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """A block of thinking that the model does not see."""

    path: str
    reason: Reason

    def record(self) -> dict[str, str]:
        return {"type": "thinking_dropped", "path": self.path, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Binding:
    """What the thinking of the next answer is bound to."""

    prefix: str
    """A digest of everything before it but thinking."""
    previous: str
    """The signature of the thinking before it; empty: none."""
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True, slots=True)
class _Claims:
    """What a signature says of its block."""

    model: str
    prefix: str
    previous: str
    content: str
    id: str = field(compare=False, default="")


def check_thinking(pieces: Sequence[Piece], reader: str, *, drop: bool) -> Binding:
    """Check all thinking that comes back. Raises `RequestError` where it is bound elsewhere and not to be dropped."""
    running, last, dropped = blake2b(digest_size=_DIGEST), "", list[Dropped]()
    for piece in pieces:
        if not piece.is_thinking:
            running.update(f"{piece.role}\0{piece.text}\0".encode("utf-8", "surrogatepass"))
            continue
        claims = _claims(piece)
        if claims.model != reader:
            dropped.append(Dropped(piece.path, "model_binding_mismatch"))
        elif claims.prefix != running.hexdigest() or (last and claims.previous != last):
            if not drop:
                raise RequestError(
                    f"{piece.path}: Invalid `signature` in `thinking` block. The block is bound to a different "
                    "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
                    '"drop_block".'
                )
            dropped.append(Dropped(piece.path, "prefix_binding_mismatch"))
        else:
            last = claims.id
    return Binding(running.hexdigest(), last, tuple(dropped))


def sign(model: str, binding: Binding, content: str) -> str:
    """The signature of a block of thinking with this content."""
    claims = {"model": model, "prefix": binding.prefix, "previous": binding.previous, "content": _digest(content)}
    return b64encode(json.dumps([claims, _seal(claims)]).encode()).decode()


def signed_id(signature: str) -> str:
    """What a later block of thinking names as the one before it."""
    return _seal(parse_json(b64decode(signature))[0])


def _claims(piece: Piece) -> _Claims:
    """Raises `RequestError` for a block that the service did not make, or not like this."""
    redacted = piece.type == "redacted_thinking"
    signature = piece.block["data"] if redacted else piece.block["signature"]
    try:
        claims, seal = parse_json(b64decode(signature, validate=True))
        intact = seal == _seal(claims) and claims["content"] == _digest("" if redacted else piece.block["thinking"])
        if intact:
            return _Claims(**claims, id=seal)
    except (ValueError, TypeError, KeyError):
        pass
    raise RequestError(f"{piece.path}: Invalid `signature` in `thinking` block")


def _digest(content: str) -> str:
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).hexdigest()


def _seal(claims: dict[str, Any]) -> str:
    text = json.dumps(claims, sort_keys=True)
    return blake2b(text.encode(), key=_SECRET, digest_size=_DIGEST).hexdigest()
