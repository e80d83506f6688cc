"""Suggests the name that a wrong one is closest to, for messages."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """`; did you mean 'x'?` or nothing."""
    matches = get_close_matches(wrong, list(right), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""
