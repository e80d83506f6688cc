"""Paths and patterns inside a repository, as plans write them: relative, with forward slashes, `**` across folders."""

import re
from collections.abc import Iterable
from functools import lru_cache


def path_problem(path: str) -> str | None:
    """Why `path` may not stand in a plan, or None."""
    if not path.strip():
        return "is empty"
    if path.startswith(("/", "~")) or re.match(r"^[A-Za-z]:", path):
        return f"{path!r} is absolute; write it relative to the repository's root"
    if ".." in path.split("/"):
        return f"{path!r} leaves the repository"
    if "\\" in path or "\0" in path or any(ord(character) < ord(" ") for character in path):
        return f"{path!r} has a backslash or a control character"
    if any(part.lower() == ".git" for part in path.split("/")):
        return f"{path!r} is git's own"
    return None


_MAYBE = ""  # stands before `**` and `/`, which it may skip: together they are `**/`


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> tuple[tuple[str, ...], tuple[frozenset[int], ...]]:
    """The tokens of a pattern, and for each place among them the places it reaches without reading."""
    rest = pattern.removeprefix("./")
    if rest.endswith("/"):
        rest += "**"
    found = re.findall(r"\*\*/|\*\*|.", rest, re.DOTALL)
    tokens = tuple(part for piece in found for part in ((_MAYBE, "**", "/") if piece == "**/" else (piece,)))
    reached = [frozenset({len(tokens)})]
    for place in range(len(tokens) - 1, -1, -1):  # reached[-n] is the n-th place from the end
        free: frozenset[int] = frozenset()
        if tokens[place] in {_MAYBE, "*", "**"}:
            free |= reached[-1]
        if tokens[place] == _MAYBE:
            free |= reached[-3]
        reached.append(free | {place})
    return tokens, tuple(reversed(reached))


def _matches(path: str, pattern: str) -> bool:
    """All ways through the pattern at once, a character at a time: no pattern of a model's makes it slow."""
    tokens, reached = _compiled(pattern)
    end = len(tokens)
    here = reached[0]
    for character in path:
        if end in here and character == "/":
            return True
        further: set[int] = set()
        for place in here - {end}:
            wanted = tokens[place]
            if wanted == "**" or (wanted == "*" and character != "/"):
                further |= reached[place]
            elif wanted == character or (wanted == "?" and character != "/"):
                further |= reached[place + 1]
        if not further:
            return False
        here = frozenset(further)
    return end in here


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns names `path` or a folder above it."""
    return any(_matches(path, pattern) for pattern in patterns)


def outside(paths: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """Those of `paths` that no pattern names."""
    wanted = tuple(patterns)
    return tuple(path for path in paths if not matches(path, wanted))
