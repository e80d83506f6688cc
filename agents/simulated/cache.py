"""Prompt caching: which marks are allowed, and how many tokens of a prompt are read, written and new.

A prefix that ends at a mark is written once an answer to it begins, for five minutes or an hour from the start of its
request; reading it starts that time again. Short prefixes are not cached, and a mark looks back over a few blocks only.
Tokens are estimated at four characters each.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from agents.simulated.prompt import Lifetime, Piece, RequestError, marked

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
