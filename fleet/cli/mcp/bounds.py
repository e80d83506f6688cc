"""A view as data that a client can take: plain text without control characters, and not longer than its model reads."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.text.safe import safe_block

LONGEST = 40_000
"""Characters of a result: some 12,000 tokens, where the first clients begin to complain."""
_ROUNDS = ((1_000, 20_000), (200, 8_000), (50, 4_000), (20, 1_000), (8, 300), (3, 120))
"""Items of each list, and characters of each text: the first pair with which the whole fits is taken."""
_DEEPEST = 40
LEFT_OUT = "left_out"


@dataclass(slots=True)
class _Cut:
    """How much is kept, and whether anything had to go."""

    items: int
    characters: int
    happened: bool = False


def bounded(data: Mapping[str, Any], *, longest: int = LONGEST) -> dict[str, Any]:
    """The data, with long lists and long texts cut until the whole is short enough; `left_out` says so."""
    shortened: dict[str, Any] = {}
    for items, characters in _ROUNDS:
        cut = _Cut(items, characters)
        shortened = {name: _shortened(value, cut, 1) for name, value in data.items()}
        if cut.happened:
            shortened[LEFT_OUT] = f"lists end after {items} items, texts after {characters} characters"
        if length(shortened) <= longest:
            return shortened
    kept = {name: value for name, value in shortened.items() if not isinstance(value, dict | list)}
    return {**kept, LEFT_OUT: "everything but single values: it is too long"}


def length(data: object) -> int:
    return len(json.dumps(data, ensure_ascii=False))


def _shortened(value: Any, cut: _Cut, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, cut)
    if depth > _DEEPEST and isinstance(value, dict | list | tuple):
        cut.happened = True
        return None
    if isinstance(value, Mapping):
        cut.happened |= len(value) > cut.items
        return {_text(str(key), cut): _shortened(item, cut, depth + 1) for key, item in _first(value.items(), cut)}
    if isinstance(value, list | tuple):
        cut.happened |= len(value) > cut.items
        return [_shortened(item, cut, depth + 1) for item in _first(value, cut)]
    return value


def _first(values: Any, cut: _Cut) -> Iterator[Any]:
    for number, value in enumerate(values):
        if number >= cut.items:
            return
        yield value


def _text(text: str, cut: _Cut) -> str:
    if len(text) > cut.characters:
        cut.happened = True
        text = text[: cut.characters] + "…"
    return safe_block(text, lines=len(text) + 1)
