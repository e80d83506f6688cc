"""Paths and patterns inside a repository, as plans write them: relative, with forward slashes, `**` across folders."""

import re
from collections.abc import Iterable
from functools import lru_cache


def path_problem(path: str) -> str | None:
    """Return why a plan may not contain `path`, or None."""
    if not path.strip():
        return "is empty"
    if path.startswith(("/", "~")) or re.match(r"^[A-Za-z]:", path):
        return f"{path!r} is absolute. Write it relative to the repository root"
    if ".." in path.split("/"):
        return f"{path!r} leaves the repository"
    if "\\" in path or "\0" in path or any(ord(character) < ord(" ") for character in path):
        return f"{path!r} has a backslash or a control character"
    if any(part.lower() == ".git" for part in path.split("/")):
        return f"{path!r} belongs to git"
    return None


_SKIP = ""  # precedes the tokens `**` and `/` of a `**/`, which may match nothing


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> tuple[tuple[str, ...], tuple[frozenset[int], ...]]:
    """The tokens of a pattern, and for each position among them the positions it reaches without reading."""
    rest = pattern.removeprefix("./")
    if rest.endswith("/"):
        rest += "**"
    pieces = re.findall(r"\*\*/|\*\*|.", rest, re.DOTALL)
    tokens = tuple(token for piece in pieces for token in ((_SKIP, "**", "/") if piece == "**/" else (piece,)))
    reached = [frozenset({len(tokens)})]
    for position in range(len(tokens) - 1, -1, -1):  # reached[-n] is the n-th position from the end
        free: frozenset[int] = frozenset()
        if tokens[position] in {_SKIP, "*", "**"}:
            free |= reached[-1]
        if tokens[position] == _SKIP:
            free |= reached[-3]
        reached.append(free | {position})
    return tokens, tuple(reversed(reached))


def _matches(path: str, pattern: str) -> bool:
    """Follow all paths through the pattern in parallel, character by character, so that no pattern is slow."""
    parts, reached = _compiled(pattern)
    end = len(parts)
    positions = reached[0]
    for character in path:
        if end in positions and character == "/":
            return True
        following: set[int] = set()
        for position in positions - {end}:
            part = parts[position]
            if part == "**" or (part == "*" and character != "/"):
                following |= reached[position]
            elif part == character or (part == "?" and character != "/"):
                following |= reached[position + 1]
        if not following:
            return False
        positions = frozenset(following)
    return end in positions


def folders_above(path: str) -> list[str]:
    """`a` and `a/b`, for `a/b/c`."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns matches `path` or a folder above it."""
    return any(_matches(path, pattern) for pattern in patterns)


def outside(paths: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """The paths that no pattern matches."""
    reusable = tuple(patterns)
    return tuple(path for path in paths if not matches(path, reusable))


# ---- tests by their names --------------------------------------------------------------------------------------------


TEST_FOLDERS = {"test", "tests", "spec", "specs", "__tests__", "testing"}
DATA_FOLDERS = {"testdata", "test_data", "test-data", "__fixtures__", "__snapshots__"}
_TEST = re.compile(r"(?:test_.*|tests|.*(?:_test|_spec|\.test|\.spec))\.[A-Za-z0-9]+|.*Tests?\.[A-Za-z0-9]+|.*\.snap")


def is_test(path: str) -> bool:
    """Whether a file is a test by its name or folder, as the usual runners find them."""
    *folders, name = path.split("/")
    return bool((TEST_FOLDERS | DATA_FOLDERS).intersection(folders)) or _TEST.fullmatch(name) is not None
