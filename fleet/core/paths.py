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


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    wild = {"**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    rest = pattern.removeprefix("./")
    if rest.endswith("/"):
        rest += "**"
    pieces = [wild.get(token) or re.escape(token) for token in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", rest)]
    return re.compile("".join(pieces) + r"(?:/.*)?", re.DOTALL)


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns names `path` or a folder above it."""
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


def outside(paths: Iterable[str], patterns: Iterable[str]) -> tuple[str, ...]:
    """Those of `paths` that no pattern names."""
    wanted = tuple(patterns)
    return tuple(path for path in paths if not matches(path, wanted))
