"""A prefix that many share is written to the cache once: the first call with it goes ahead, the others follow.

A cache entry can be read as soon as the answer that writes it has begun. A hundred calls at once would each miss it and
each pay for writing it; here one does, and the rest wait until its answer begins, a second or two.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import anyio

from agents.models.answer import Answer, CallFault, Headroom, Model, Request, estimated_tokens
from agents.models.prices import limits_of

LIFETIME_S = 270.0
"""An entry lives five minutes from its last use; a little less is sure."""

PATIENCE_S = 20.0
"""Whoever waited so long goes ahead, too: an answer that does not begin holds nobody up for long."""


@dataclass(slots=True)
class _Prefix:
    """What is known of one shared prefix."""

    warm_until: float = float("-inf")
    leader: anyio.Event | None = None
    """Set when whoever goes ahead has begun to get an answer, or has failed."""


@dataclass(slots=True)
class Warmed:
    """A model whose callers don't write the same prefix side by side."""

    model: Model
    now: Callable[[], float] = anyio.current_time
    _prefixes: dict[bytes, _Prefix] = field(default_factory=dict)

    async def ask(self, request: Request) -> Answer | CallFault:
        key = _shared(request)
        if key is None:
            return await self.model.ask(request)
        prefix = self._prefixes.setdefault(key, _Prefix())
        while prefix.warm_until <= self.now():
            if prefix.leader is None:
                return await self._lead(request, prefix)
            with anyio.move_on_after(PATIENCE_S) as waiting:
                await prefix.leader.wait()
            if waiting.cancelled_caught:
                break
        prefix.warm_until = self.now() + LIFETIME_S  # reading keeps it alive
        return await self.model.ask(request)

    async def _lead(self, request: Request, prefix: _Prefix) -> Answer | CallFault:
        leader = prefix.leader = anyio.Event()

        def begun(headroom: Headroom) -> None:
            prefix.warm_until = self.now() + LIFETIME_S
            leader.set()
            request.begun(headroom)

        try:
            return await self.model.ask(replace(request, begun=begun))
        finally:
            prefix.leader = None
            leader.set()


def _shared(request: Request) -> bytes | None:
    """What a request shares with others, where it is long enough to be cached; None for later turns, too."""
    if len(request.messages) > 1:
        return None
    first = request.messages[0]["content"][: request.shared] if request.shared else []
    common = replace(request, messages=({"role": "user", "content": first},), length=None)
    if estimated_tokens(common) < limits_of(request.model).cache_minimum_tokens:
        return None
    digest = blake2b(digest_size=16)
    for part in (request.model, request.system, request.tools, first):
        digest.update(json.dumps(part, ensure_ascii=True).encode() + b"\0")
    return digest.digest()
