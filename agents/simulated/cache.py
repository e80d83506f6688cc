"""What a prompt costs with caching: a prefix that ends at a breakpoint is written at first sight, and read later.

Tokens are guessed: four characters each. Knows nothing of what the blocks say.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

CHARACTERS_PER_TOKEN = 4
REMEMBERED = 100_000  # prefixes; 16 bytes each


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """The three ways a prompt's tokens are counted."""

    input: int
    cache_write: int
    cache_read: int


class PromptCache:
    """The prefixes that were seen, by model."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._remembered = remembered

    def count(self, model: str, blocks: Sequence[tuple[str, bool]]) -> PromptTokens:
        digest = blake2b(model.encode(), digest_size=16)
        characters = read = cached = 0
        marks: list[bytes] = []
        last = max((index for index, (_, marked) in enumerate(blocks) if marked), default=-1)
        for index, (text, marked) in enumerate(blocks):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
            characters += len(text)
            if index > last:
                continue
            prefix = digest.digest()
            if prefix in self._seen:
                read = characters
                self._seen.move_to_end(prefix)
            if marked:
                cached = characters
                marks.append(prefix)
        self._remember(marks)
        return PromptTokens(
            input=tokens(characters - cached), cache_write=tokens(cached - read), cache_read=tokens(read)
        )

    def _remember(self, marks: Sequence[bytes]) -> None:
        for mark in marks:
            self._seen[mark] = None
        while len(self._seen) > self._remembered:
            self._seen.popitem(last=False)


def tokens(characters: int) -> int:
    """A guess, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)
