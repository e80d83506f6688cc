"""What a prompt costs with caching, counted as the real service counts it.

A prefix that ends at a breakpoint is written once an answer to it begins, and read from then on by whoever sends the
same prefix, as long as it is used again in time. Short prefixes are not cached, and a prefix is only looked for a few
blocks before a breakpoint. Tokens are guessed: four characters each. Knows nothing of what the blocks say.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b

CHARACTERS_PER_TOKEN = 4
REMEMBERED = 100_000  # prefixes; 16 bytes each
LIFETIME_S = 300.0
LOOKBACK = 20  # blocks before a breakpoint in which an earlier prefix is found
MINIMUM_TOKENS = (("*haiku*", 4096), ("*", 1024))  # of a prefix that is cached at all, by model


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The three ways a prompt's tokens are counted."""

    input: int
    cache_write: int
    cache_read: int
    begun: Callable[[], None] = lambda: None
    """To be called when the answer begins: what it wrote can be read from then on."""


class PromptCache:
    """The prefixes that were written, by model, each with when it was last used."""

    def __init__(
        self, now: Callable[[], float], minimum_tokens: int | None = None, remembered: int = REMEMBERED
    ) -> None:
        self._now = now
        self._minimum_tokens = minimum_tokens
        self._used: OrderedDict[bytes, float] = OrderedDict()
        self._remembered = remembered

    def count(self, model: str, blocks: Sequence[tuple[str, bool]]) -> PromptTokens:
        """How a prompt's tokens are counted, where some blocks have a breakpoint on them."""
        prefixes = list(_prefixes(model, blocks))
        minimum = self._minimum(model)
        marks = [index for index, (_, marked) in enumerate(blocks) if marked and tokens(prefixes[index][1]) >= minimum]
        whole = prefixes[-1][1] if prefixes else 0
        if not marks:
            return PromptTokens(input=tokens(whole), cache_write=0, cache_read=0)
        found = next((index for index in _looked_at(marks) if self._is_warm(prefixes[index][0])), None)
        read = prefixes[found][1] if found is not None else 0
        cached = prefixes[marks[-1]][1]
        written = [prefixes[index][0] for index in marks]
        if found is not None:
            self._remember([prefixes[found][0]])
        return PromptTokens(
            input=tokens(whole - cached),
            cache_write=tokens(cached - read),
            cache_read=tokens(read),
            begun=lambda: self._remember(written),
        )

    def _minimum(self, model: str) -> int:
        if self._minimum_tokens is not None:
            return self._minimum_tokens
        return next(minimum for pattern, minimum in MINIMUM_TOKENS if fnmatchcase(model, pattern))

    def _is_warm(self, prefix: bytes) -> bool:
        used = self._used.get(prefix)
        return used is not None and self._now() - used <= LIFETIME_S

    def _remember(self, prefixes: Sequence[bytes]) -> None:
        for prefix in prefixes:
            self._used[prefix] = self._now()
            self._used.move_to_end(prefix)
        while len(self._used) > self._remembered:
            self._used.popitem(last=False)


def _prefixes(model: str, blocks: Sequence[tuple[str, bool]]) -> list[tuple[bytes, int]]:
    """Of each prefix of the blocks what it is known by, and how many characters it has."""
    digest = blake2b(model.encode(), digest_size=16)
    characters = 0
    prefixes = []
    for text, _ in blocks:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        characters += len(text)
        prefixes.append((digest.digest(), characters))
    return prefixes


def _looked_at(marks: Sequence[int]) -> list[int]:
    """Where an earlier prefix may be found, the longest first."""
    within = {index for mark in marks for index in range(max(0, mark - LOOKBACK), mark + 1)}
    return sorted(within, reverse=True)


def tokens(characters: int) -> int:
    """A guess, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)
