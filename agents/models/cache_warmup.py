"""Writes a prefix shared by many conversations to the cache only once: the first call leads, the others follow.

A cache entry can be read as soon as the answer that writes it has started. A hundred concurrent calls would each miss
it and pay for writing it. Here one call writes it, and the others wait a second or two until its answer starts.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import anyio

from agents.models.answer import (
    Answer,
    CallFault,
    Lacks,
    Model,
    OnBegin,
    Quotas,
    Request,
    estimated_tokens,
    lacks_nothing,
)
from agents.models.prices import (
    LIFETIMES,
    UNKNOWN_GAPS,
    Lifetimes,
    Price,
    cache_rates,
    ending_pays,
    hour_pays,
    limits_of,
)

_GAPS = 16
"""The number of recent gaps between conversations to consider."""
_SECOND = 3
"""The number of messages in a conversation's second request."""

PATIENCE_S = 20.0
"""The longest time that a follower waits for a silent leader before it calls anyway."""


@dataclass(slots=True)
class _Prefix:
    """The state of one shared prefix."""

    warm_until: float = float("-inf")
    leader: anyio.Event | None = None
    """Set when the leader's answer has started or its call has failed."""


@dataclass(slots=True)
class _Uses:
    """The start times of conversations with the same system prompt, model and effort, and the gaps between them."""

    last: float | None = None
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))
    begun: int = 0
    continued: int = 0
    """How many of them continued after the first answer."""

    def begin(self, now: float, first_gaps: tuple[float, ...]) -> None:
        if self.last is None:
            self.gaps.extend(first_gaps)
        else:
            self.gaps.append(now - self.last)
        self.last = now
        self.begun += 1

    def goes_on(self, now: float, messages: int) -> None:
        self.last = now
        self.continued += messages == _SECOND


@dataclass(slots=True)
class CacheWarmup:
    """Prevents concurrent calls from writing the same prefix to the cache."""

    model: Model
    prices: Mapping[str, Price] = field(default_factory=dict)
    now: Callable[[], float] = anyio.current_time
    patience_s: float = PATIENCE_S
    times: Lifetimes = LIFETIMES
    lacks: Lacks = lacks_nothing
    _prefixes: dict[bytes, _Prefix] = field(default_factory=dict)
    _uses: dict[tuple[str, str, str | None], _Uses] = field(default_factory=dict)

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        if self.lacks(request.model, "cache"):
            return await self.model.ask(request, on_begin)
        request = self._kept(request)
        async with self._in_turn(_shared_prefix(request), request.kept_s, on_begin) as begun:
            return await self.model.ask(request, begun)

    @asynccontextmanager
    async def forwarding(self, body: Mapping[str, Any], on_begin: OnBegin) -> AsyncIterator[OnBegin]:
        """Wrap a call whose request is forwarded unchanged."""
        request = _first_request(body)
        key = _shared_prefix(request) if request is not None and not self.lacks(request.model, "cache") else None
        async with self._in_turn(key, self.times.short_s, on_begin) as begun:
            yield begun

    @asynccontextmanager
    async def _in_turn(self, key: bytes | None, kept_s: float, on_begin: OnBegin) -> AsyncIterator[OnBegin]:
        """Wrap a call: it leads, or waits until the leader's answer has started."""
        if key is None:
            yield on_begin
            return
        prefix, lives_s = self._prefixes.setdefault(key, _Prefix()), kept_s - self.times.margin_s
        while prefix.warm_until <= self.now():
            if prefix.leader is None:
                with self._leading(prefix, lives_s, on_begin) as begun:
                    yield begun
                return
            with anyio.move_on_after(self.patience_s) as waiting:
                await prefix.leader.wait()
            if waiting.cancelled_caught:
                break
        prefix.warm_until = self.now() + lives_s  # reading keeps it alive
        yield on_begin

    def _kept(self, request: Request) -> Request:
        """Return the request, with shared blocks kept for an hour if the gaps between such calls make that cheaper."""
        uses = self._uses.setdefault((request.model, request.system, request.effort), _Uses())
        rates = cache_rates(request.model, self.prices)
        # workers' conversations always continue after the first answer, planners' only sometimes
        ends = not request.recurs or ending_pays(uses.continued, uses.begun, rates)
        if len(request.messages) == 1 and request.max_tokens:
            uses.begin(self.now(), first_gaps=UNKNOWN_GAPS if request.recurs else ())
        else:
            uses.goes_on(self.now(), len(request.messages) if request.max_tokens else 0)
        pays = hour_pays(tuple(uses.gaps), rates, self.times)
        return replace(request, kept_s=self.times.hour_s if pays else self.times.short_s, ends_in_cache=ends)

    @contextmanager
    def _leading(self, prefix: _Prefix, lives_s: float, on_begin: OnBegin) -> Iterator[OnBegin]:
        """Lead during the block: other calls wait until this answer starts."""
        leader, started = anyio.Event(), self.now()
        prefix.leader = leader

        def release_followers(quotas: Quotas) -> None:
            prefix.warm_until = started + lives_s
            leader.set()
            on_begin(quotas)

        try:
            yield release_followers
        finally:
            prefix.leader = None
            leader.set()


def _shared_prefix(request: Request) -> bytes | None:
    """Return a digest of the shared prefix of a first turn; None if it is too short for the cache."""
    if len(request.messages) > 1:
        return None
    first = request.messages[0]["content"][: request.shared] if request.shared else []
    common = replace(request, messages=({"role": "user", "content": first},), length=None)
    if estimated_tokens(common) < limits_of(request.model).cache_minimum_tokens:
        return None
    digest = blake2b(digest_size=16)
    for part in (request.model, request.effort, request.system, request.tools, first):
        digest.update(json.dumps(part, ensure_ascii=True).encode() + b"\0")
    return digest.digest()


def _first_request(body: Mapping[str, Any]) -> Request | None:
    """Reconstruct a conversation's first request from its body, as far as it affects sharing; None for later requests.

    A cache mark before the last block is the end of the shared prefix.
    """
    match body:
        case {
            "model": str(model),
            "system": [{"text": str(system)}],
            "tools": list(tools),
            "messages": [{"content": list(content)}],
        }:
            shared = next((at for at in range(len(content) - 1, 0, -1) if "cache_control" in content[at - 1]), 0)
            blocks = [{name: block[name] for name in block if name != "cache_control"} for block in content]
            effort = (body.get("output_config") or {}).get("effort")
            first = {"role": "user", "content": blocks}
            return Request(model, 0, system, tuple(tools), (first,), shared, effort=effort)
        case _:
            return None
