"""The nearest right name for a wrong one, for messages that help."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """`; did you mean 'x'?` or nothing."""
    near = get_close_matches(wrong, list(right), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
